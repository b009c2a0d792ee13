"""The commands of docs/operations.md, as they stand and in their order, against a product of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from launcher.child import free_port
from tests.stack.stack import ROOT, environment, flush, other_db, own_database

PAGE = ROOT / "docs/operations.md"
OPERATIONS_DB = 14
ENDS_WITHIN_S = 240
# It ends with the first command that fails, and whatever was started ends with it.
SHELL = "set -euo pipefail\ntrap 'kill $(jobs -p); wait' EXIT\n"


@pytest.fixture
def settings_given(tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """What an operator would have in the environment: safe settings, and an engine that starts at once."""
    with ExitStack() as cleanup:
        urls = {name: other_db(os.environ[name], OPERATIONS_DB) for name in ("BROKER_URL", "STREAMS_URL")}
        for url in urls.values():
            cleanup.callback(flush, url)
            flush(url)
        urls["DATABASE_URL"] = cleanup.enter_context(
            own_database(os.environ["DATABASE_URL"], f"operated_{os.getpid()}")
        )
        yield {
            **os.environ,
            **environment("scripted", tmp_path),
            **urls,
            "STATIC_ROOT": str(tmp_path / "static-root"),  # it gathers them itself
            "DJANGO_SETTINGS_MODULE": "chatsite.settings",
            "DEBUG": "false",
            "HTTPS": "true",
            "BEHIND_PROXY": "true",
            "SECRET_KEY": "operated-abcdefghijklmnopqrstuvwxyz-0123456789-ABCDEFGHIJKLMNOP",
            "METRICS_TOKEN": "a-long-token",
            "PORT": str(free_port()),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }


def test_all_commands_do_what_the_page_says(settings_given: Mapping[str, str]) -> None:
    blocks = re.findall(r"^( *)```bash\n(.*?)^ *```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    script = SHELL + "".join(textwrap.dedent(block) for _, block in blocks)
    ran = subprocess.run(
        ["bash", "-c", script],
        cwd=ROOT,
        env=settings_given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=ENDS_WITHIN_S,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout
    shown = ran.stdout
    for sign in (
        "no issues",
        "event: done",
        "worker.exits",
        'palaver_model_workers{model="default"} 1.0',
        "kv_blocks",
        "hot context",
    ):
        assert sign in shown, f"{sign!r} is not in:\n{shown}"
    assert shown.index("event: done") < shown.index("worker.exits")
