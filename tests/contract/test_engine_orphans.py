"""kill -9 of the process that hosts vLLM takes EngineCore along, during start-up too."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep

import psutil
import pytest

from tests.contract.engine_processes import is_gone, spawned_by

ROOT = Path(__file__).resolve().parents[2]
START_PATIENCE_S = 240
DEATH_PATIENCE_S = 10

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(START_PATIENCE_S + 60)]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    # Into a file: a pipe would fill up.
    with (tmp_path / "host.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "tests.contract.engine_host"], cwd=ROOT, stdout=log)
        yield process
        process.kill()
        process.wait()


def wait_until(condition: Callable[[], bool], patience_s: float) -> None:
    deadline = monotonic() + patience_s
    while not condition():
        assert monotonic() < deadline, "waited in vain"
        sleep(0.02)


def test_kill_9_of_the_host_while_its_engine_starts_leaves_nothing_behind(host: subprocess.Popen[bytes]) -> None:
    parent = psutil.Process(host.pid)

    def come() -> bool:
        assert host.poll() is None, "the host ended by itself"
        return bool(spawned_by(parent))

    wait_until(come, START_PATIENCE_S)
    parent.suspend()  # so that nothing is spawned between the count and the kill
    family = parent.children(recursive=True)
    assert spawned_by(parent)

    host.kill()
    host.wait()

    wait_until(lambda: all(map(is_gone, family)), DEATH_PATIENCE_S)
