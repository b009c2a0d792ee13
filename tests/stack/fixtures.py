"""Running stacks, one a session for each engine; a test that fails shows what their processes last said."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from launcher.install import hardware
from launcher.workers import environments
from tests.sse_client import Api
from tests.stack.stack import SLOTS, Process, Stack, copy_model, running, web_beside

# Redis databases beside those that in-process tests use.
SCRIPTED_DB, VLLM_DB = 4, 6
SCRIPT = {
    "SCRIPT_SLOTS": str(SLOTS),
    "SCRIPT_TOKENS_PER_S": "100",
    "SCRIPT_SPLIT_CHARACTERS": "1",
    "SCRIPT_CHARS": "150",
}
_running: list[Stack] = []
_FIGURES = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def scripted_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The product with the scripted engine: answers of 150 characters in many scripts, a byte a token."""
    yield from stack_of("scripted", SCRIPTED_DB, tmp_path_factory, SCRIPT)


@pytest.fixture(scope="session")
def vllm_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The product with the real engine and the default model. Takes about a minute to start."""
    # Cores or a GPU as `make run` gives them: vLLM's own choice of a core is the same for every process.
    place = environments(1, hardware(), tmp_path_factory.mktemp("ready"))[0]
    yield from stack_of("vllm", VLLM_DB, tmp_path_factory, place)


def stack_of(
    engine: str, first_redis_db: int, tmp_path_factory: pytest.TempPathFactory, wishes: dict[str, str]
) -> Iterator[Stack]:
    """A running stack, for a fixture: see `running`."""
    with running(engine, first_redis_db, tmp_path_factory.mktemp(f"stack-{engine}"), wishes) as stack:
        _running.append(stack)
        yield stack
        _running.remove(stack)


@pytest.fixture
def second_web(scripted_stack: Stack, tmp_path: Path) -> Iterator[tuple[Process, int]]:
    """Another web process of the scripted stack's product, which may be stopped, and its port."""
    with web_beside(scripted_stack, tmp_path) as started:
        yield started


@pytest.fixture
def webs(scripted_stack: Stack, second_web: tuple[Process, int]) -> Sequence[Api]:
    """The demo account's view of the scripted stack through either of its two web processes."""
    return scripted_stack.api, Api(second_web[1], scripted_stack.key)


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Takes a line to print at the session's end, of a test that passed too."""
    return request.config.stash.setdefault(_FIGURES, []).append


@pytest.fixture
def idle_model(scripted_stack: Stack) -> Iterator[str]:
    """A model that no worker runs."""
    slug = f"idle-{uuid4().hex[:8]}"
    with psycopg.connect(scripted_stack.database_url, autocommit=True) as connection:
        copy_model(connection, slug, "Idle")
        yield slug
        connection.execute("UPDATE scheduler_model SET is_active = false WHERE slug = %s", [slug])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what was measured."""
    if lines := config.stash.get(_FIGURES, []):
        terminalreporter.section("figures")
        terminalreporter.write_line("\n".join(lines))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the processes' last words beside a failure."""
    report = yield
    if report.failed:
        tails = [(f"{process.name}'s log", process.tail()) for stack in _running for process in stack.processes]
        report.sections += tails
    return report
