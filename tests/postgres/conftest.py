"""A backup of the scripted stack's product, and a machine on which it was restored: one of each a session."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres.backups import Kept, machine, run_documented, served, used
from tests.postgres.standby import server_folder
from tests.stack.fixtures import SCRIPT
from tests.stack.stack import Stack

RESTORED_DB = 12  # and the next: Redis databases that no other stack has


@pytest.fixture(scope="session")
def backup(scripted_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Kept]:
    """A folder with a dump, made while the product served, and what was in it."""
    folder = tmp_path_factory.mktemp("backup")
    try:
        kept = asyncio.run(used(scripted_stack))
        run_documented(1, scripted_stack.environ, folder)
    finally:
        scripted_stack.worker.popen.send_signal(signal.SIGCONT)
    return folder, kept


@pytest.fixture(scope="session")
def restored(backup: tuple[Path, Kept], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The product on a machine that had nothing, with another `SECRET_KEY`."""
    processes = tmp_path_factory.mktemp("restored")
    with server_folder() as folder, machine(folder, RESTORED_DB, SCRIPT) as environ:
        environ |= {"SECRET_KEY": "another-" + "1" * 60, "READY_FILE": str(processes / "ready")}
        run_documented(2, environ, backup[0])
        with served(environ, processes, backup[1].key) as stack:
            yield stack
