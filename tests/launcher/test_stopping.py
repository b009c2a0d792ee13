"""However it is told to stop, or killed, and whenever: no process is left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.launcher.conftest import Launch
from tests.launcher.launched import Launched, free_port, launcher

# What the product promises.
ASKED_S = 15
KILLED_S = 10
READY = r"Palaver is ready"
URLS = ("DATABASE_URL", "BROKER_URL", "STREAMS_URL")

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def own(tmp_path: Path) -> dict[str, str]:
    """Settings of a product of its own: state, port, embedded servers, an engine that starts at once."""
    without_urls = dict.fromkeys(URLS, "")
    return without_urls | {"PALAVER_STATE": str(tmp_path / "state"), "PORT": str(free_port()), "ENGINE": "scripted"}


@pytest.fixture
def running(launch: Launch, own: dict[str, str]) -> Launched:
    """The whole product, ready."""
    launched = launch(launcher("run"), own)
    launched.wait_for(READY)
    return launched


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_every_process(running: Launched, signum: signal.Signals) -> None:
    running.process.send_signal(signum)

    running.assert_gone(ASKED_S)
    assert running.ended() in (128 + signal.SIGINT, 128 + signal.SIGTERM)
    assert "Traceback" not in running.output


def test_ctrl_c_in_the_terminal_stops_every_process_under_make(launch: Launch, own: dict[str, str]) -> None:
    made = launch(["make", "run"], own)
    made.wait_for(READY)

    os.killpg(made.process.pid, signal.SIGINT)  # what a terminal does: make and its children get it

    made.assert_gone(ASKED_S)


def test_kill_9_of_the_guard_leaves_nothing(running: Launched) -> None:
    running.guard.kill()

    running.assert_gone(KILLED_S)


def test_kill_9_of_the_runner_leaves_nothing(running: Launched) -> None:
    running.runner.kill()

    running.assert_gone(KILLED_S)


def test_kill_9_of_make_leaves_nothing(launch: Launch, own: dict[str, str]) -> None:
    made = launch(["make", "run"], own)
    made.wait_for(READY)

    made.process.kill()

    made.assert_gone(KILLED_S)


def test_kill_9_of_the_whole_process_group_leaves_nothing(launch: Launch, own: dict[str, str]) -> None:
    made = launch(["make", "run"], own)
    made.wait_for(READY)

    os.killpg(made.process.pid, signal.SIGKILL)

    made.assert_gone(KILLED_S)


@pytest.mark.parametrize("victim", ["guard", "runner"])
@pytest.mark.parametrize(
    "phase", ["initdb", "postgres -D", r"manage\.py migrate", r"manage\.py prepare", r"chatsite\.serve"]
)
def test_kill_9_during_start_up_leaves_nothing(launch: Launch, own: dict[str, str], phase: str, victim: str) -> None:
    launched = launch(launcher("run"), own)
    launched.wait_for_process(phase)

    kill(launched, victim)

    launched.assert_gone(KILLED_S)


@pytest.mark.parametrize("victim", ["guard", "runner"])
@pytest.mark.parametrize("phase", ["ensurepip", "pip .*install"])
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


@pytest.mark.parametrize("victim", [r"chatsite\.serve", r"inference\.worker", "postgres -D", "valkey-server"])
def test_a_part_that_ends_by_itself_stops_the_whole_and_is_named(running: Launched, victim: str) -> None:
    parts = {r"chatsite\.serve": "web", r"inference\.worker": "gpu1", "postgres -D": "PostgreSQL"}

    running.wait_for_process(victim).kill()

    running.assert_gone(ASKED_S)
    assert running.ended() == 1
    assert f"palaver: {parts.get(victim, 'Valkey')} ended by itself" in running.output


@pytest.mark.vllm
@pytest.mark.parametrize("victim", ["guard", "runner"])
def test_kill_9_leaves_nothing_of_vllm_while_it_imports(launch: Launch, own: dict[str, str], victim: str) -> None:
    launched = launch(launcher("run"), own | {"ENGINE": "vllm"})
    launched.wait_for_process(r"multiprocessing\.spawn import spawn_main|EngineCore", within_s=300)

    kill(launched, victim)

    launched.assert_gone(KILLED_S)


@pytest.mark.vllm
def test_kill_9_leaves_nothing_of_vllm_when_it_serves(launch: Launch, own: dict[str, str]) -> None:
    launched = launch(launcher("run"), own | {"ENGINE": "vllm"})
    launched.wait_for(READY, within_s=400)

    launched.runner.kill()

    launched.assert_gone(KILLED_S)


def kill(launched: Launched, victim: str) -> None:
    """kill -9 of the guard or the runner."""
    process: psutil.Process = launched.guard if victim == "guard" else launched.runner
    launched.tree()
    process.kill()
