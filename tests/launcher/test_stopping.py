"""However it is told to stop, or killed, and whenever: no process is left behind."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.child import free_port
from launcher.keeper import UP_AFTER_S
from tests.launcher.conftest import Launch
from tests.launcher.launched import Launched, launcher

# What the product promises.
ASKED_S = 15
KILLED_S = 10
READY = r"Palaver is ready"
KEPT = r"^(?!.*launcher\.keeper).*"
URLS = ("DATABASE_URL", "BROKER_URL", "STREAMS_URL")

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def used_state() -> Iterator[Path]:
    """A state folder that earlier starts of this module have filled; each test's kill is the next one's past."""
    yield from _state()


@pytest.fixture
def fresh_state() -> Iterator[Path]:
    """A state folder with nothing in it."""
    yield from _state()


def _state() -> Iterator[Path]:
    # Open to the user that PostgreSQL runs as where we are root, so that nothing is kept outside it.
    with tempfile.TemporaryDirectory(prefix="palaver-state-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@pytest.fixture
def own(used_state: Path) -> dict[str, str]:
    """Settings of a product of its own: state, port, embedded servers, an engine that starts at once."""
    without_urls = dict.fromkeys(URLS, "")
    return without_urls | {"PALAVER_STATE": str(used_state), "PORT": str(free_port()), "ENGINE": "scripted"}


@pytest.fixture
def running(launch: Launch, own: dict[str, str]) -> Launched:
    """The whole product, ready."""
    launched = launch(launcher("run"), own)
    launched.wait_for(READY)
    return launched


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_every_process_in_order(running: Launched, own: dict[str, str], signum: signal.Signals) -> None:
    running.process.send_signal(signum)

    running.assert_gone(ASKED_S)
    assert running.ended() == 128 + signal.SIGTERM
    assert_orderly(running, own)


def test_ctrl_c_in_the_terminal_stops_every_process_in_order(launch: Launch, own: dict[str, str]) -> None:
    made = launch(["make", "run"], own)
    made.wait_for(READY)

    os.killpg(made.process.pid, signal.SIGINT)  # what a terminal does: make and its children get it

    made.assert_gone(ASKED_S)
    assert_orderly(made, own)


def assert_orderly(launched: Launched, own: dict[str, str]) -> None:
    """It stopped its servers itself, before its bound made it kill them."""
    assert "Traceback" not in launched.output
    log = (Path(own["PALAVER_STATE"]) / "log/postgres.log").read_text()
    assert "database system is shut down" in log.splitlines()[-1]


@pytest.mark.parametrize("victim", ["guard", "runner", "make"])
def test_kill_9_of_a_parent_leaves_nothing(launch: Launch, own: dict[str, str], victim: str) -> None:
    made = launch(["make", "run"], own)
    made.wait_for(READY)

    kill(made, victim)

    made.assert_gone(KILLED_S)


def test_kill_9_of_the_whole_process_group_leaves_nothing(launch: Launch, own: dict[str, str]) -> None:
    made = launch(["make", "run"], own)
    made.wait_for_process(r"chatsite\.serve")

    os.killpg(made.process.pid, signal.SIGKILL)

    made.assert_gone(KILLED_S)


@pytest.mark.parametrize("victim", ["guard", "runner"])
@pytest.mark.parametrize("phase", ["initdb", r"postgres -D", r"launcher\.database", r"inference\.worker"])
def test_kill_9_during_start_up_leaves_nothing(
    launch: Launch, own: dict[str, str], fresh_state: Path, phase: str, victim: str
) -> None:
    fresh = {"PALAVER_STATE": str(fresh_state)} if phase == "initdb" else {}
    launched = launch(launcher("run"), own | fresh)
    launched.wait_for_process(phase)

    kill(launched, victim)

    launched.assert_gone(KILLED_S)


@pytest.mark.parametrize(("phase", "victim"), [("ensurepip", "runner"), ("pip .*install", "guard")])
def test_kill_9_during_installation_leaves_nothing(
    launch: Launch, bare_checkout: Path, silent_index: dict[str, str], phase: str, victim: str
) -> None:
    launched = launch(launcher("test"), silent_index, bare_checkout)
    launched.wait_for_process(phase)

    kill(launched, victim)

    launched.assert_gone(KILLED_S)


def test_a_stop_during_installation_is_obeyed(
    launch: Launch, bare_checkout: Path, silent_index: dict[str, str]
) -> None:
    launched = launch(launcher("test"), silent_index, bare_checkout)
    launched.wait_for_process("pip .*install")

    launched.process.send_signal(signal.SIGINT)

    launched.assert_gone(ASKED_S)
    assert launched.ended() == 128 + signal.SIGINT
    assert "Traceback" not in launched.output


def test_a_server_that_ends_by_itself_stops_the_whole_and_is_named(running: Launched) -> None:
    running.wait_for_process("valkey-server").kill()

    running.assert_gone(ASKED_S)
    assert running.ended() == 1
    assert "palaver: Valkey ended by itself" in running.output


def test_a_part_that_dies_is_started_again(running: Launched) -> None:
    for name, pattern in {"gpu1": r"celeryd: ", "reaper": KEPT + r"manage reaper", "web": KEPT + r"chatsite"}.items():
        died = running.wait_for_process(pattern)
        time.sleep(max(0.0, died.create_time() + UP_AFTER_S + 1 - time.time()))  # it has come up by then

        died.kill()

        running.wait_for(rf"{name}.*ended with status 137, is started again")
        assert running.wait_for_process(pattern) != died


@pytest.mark.vllm
def test_kill_9_leaves_nothing_of_vllm_while_it_imports(launch: Launch, own: dict[str, str]) -> None:
    launched = launch(launcher("run"), own | {"ENGINE": "vllm"})
    launched.wait_for_process(r"multiprocessing\.spawn import spawn_main|EngineCore", within_s=300)

    kill(launched, "runner")

    launched.assert_gone(KILLED_S)


@pytest.mark.vllm
def test_kill_9_leaves_nothing_of_vllm_when_it_serves(launch: Launch, own: dict[str, str]) -> None:
    launched = launch(launcher("run"), own | {"ENGINE": "vllm"})
    launched.wait_for(READY, within_s=400)

    launched.runner.kill()

    launched.assert_gone(KILLED_S)


def kill(launched: Launched, victim: str) -> None:
    """kill -9 of make, the guard or the runner, when all that is there has been seen."""
    process = {"make": launched.top, "guard": launched.guard, "runner": launched.runner}[victim]
    launched.tree()
    process.kill()
