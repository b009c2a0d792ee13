"""A server that follows another, which it was copied from."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import psycopg

from launcher.account import stand_in
from launcher.child import Child
from launcher.postgres import Postgres

PATIENCE_S = 60


class Standby(Postgres):
    """A streaming replica, at first a copy of the server that `primary_url` names."""

    def __init__(self, folder: Path, primary_url: str, settings: Sequence[str] = ()) -> None:
        super().__init__(folder, str(urlsplit(primary_url).password), folder / "standby.log", throw_away=True)
        self._primary_url = primary_url
        self._settings = settings

    @property
    def log(self) -> Path:
        """What it says."""
        return self._log

    def _initialise(self) -> None:
        draft = self.data.with_name("postgres.new")
        self._account.own(draft)
        copy = [self._program("pg_basebackup"), "-d", self._primary_url, "-D", str(draft), "-R", "-c", "fast"]
        subprocess.run(
            [*copy, "--no-sync"], cwd="/", check=True, capture_output=True, timeout=PATIENCE_S, **self._account.identity
        )
        draft.rename(self.data)

    def _command(self) -> list[str]:
        return [*super()._command(), *(f"-c{setting}" for setting in self._settings)]


@contextmanager
def server_folder() -> Iterator[Path]:
    """A folder that goes at the end, for a server that may have to run as another user than we."""
    with tempfile.TemporaryDirectory(prefix="palaver-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)
        try:
            yield folder
        finally:
            shutil.rmtree(stand_in(folder), ignore_errors=True)


@contextmanager
def silenced(server: Child) -> Iterator[None]:
    """Hold all of its processes still, as if its machine were: what is sent to it is taken, and nothing comes back."""
    postmaster = psutil.Process(server.pid)
    held = [postmaster, *postmaster.children(recursive=True)]
    for process in held:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in held:
            process.send_signal(signal.SIGCONT)


def catch_up(primary_url: str, replica_url: str) -> None:
    """Return when the replica has all that the primary has now."""
    with psycopg.connect(primary_url, autocommit=True) as primary:
        [there] = primary.execute("SELECT pg_current_wal_insert_lsn()").fetchone() or [None]
        primary.execute("SELECT pg_switch_wal()")  # what is not full yet goes out too
    give_up_at = time.monotonic() + PATIENCE_S
    with psycopg.connect(replica_url, autocommit=True) as replica:
        while (replica.execute("SELECT pg_last_wal_replay_lsn() >= %s", [there]).fetchone() or [False])[0] is not True:
            assert time.monotonic() < give_up_at
            time.sleep(0.1)
