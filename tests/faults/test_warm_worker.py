"""Two workers, of which one is warm for a chat: it has the chat's turns, and its death costs a cold prefill once."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.faults.parts import Worker
from tests.faults.world import Plan, World, new_folder, remove, running
from tests.sse_client import Api, Reading

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

BLOCK, SLOTS = 16, 2
SCRIPT = {
    "SCRIPT_PREFIX_CACHING": "1",
    "SCRIPT_BLOCK_TOKENS": str(BLOCK),
    "SCRIPT_TOKENS_PER_S": "50",
    "SCRIPT_PREFILL_TOKENS_PER_S": "2000",
    "SCRIPT_SLOTS": str(SLOTS),
}
# Beyond which an engine's prefill is measured.
WORDS = "one two three four five six seven eight nine ten " * 30
ROW = """
    SELECT worker, input_tokens, cached_tokens, output_tokens, attempt, route FROM chat_run WHERE id = %s
"""
STREAMING = "SELECT count(*) FROM chat_run WHERE id = %s AND status = 'streaming'"
WRITTEN = "SELECT count(*) FROM chat_run WHERE id = %s AND first_token_at IS NOT NULL"
QUIET = "SELECT count(*) = 0 FROM chat_run WHERE chat_id = %s AND status IN ('queued', 'streaming')"


@dataclass(frozen=True, slots=True)
class Turn:
    """What a run's row says."""

    worker: str
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    attempt: int
    route: dict[str, Any] | None

    @property
    def is_warm(self) -> bool:
        """Whether nearly all that was said before was there."""
        return self.cached_tokens > self.input_tokens - 2 * BLOCK - 60


@dataclass
class Talk:
    """One user's chat in a world."""

    world: World
    api: Api
    chat_id: str = ""

    async def turn(self, content: str, chars: int = 40) -> Turn:
        """Ask and read to the end."""
        run_id = await self.ask(content, chars)
        await self.api.read(f"/api/runs/{run_id}/stream", Reading())
        return self.of(run_id)

    async def ask(self, content: str, chars: int = 40, first_token_ms: float = 0) -> str:
        """Ask; the run's id."""
        script = json.dumps({"text": "word " * (chars // 5), "first_token_ms": first_token_ms})
        asked = await self.api.ask(f"{content} [[script {script}]]", self.chat_id or None)
        self.chat_id = asked["chat_id"]
        return str(asked["run_id"])

    async def stop(self, run_id: str) -> None:
        """Cancel it, and wait until it is over."""
        await self.api.post(f"/api/runs/{run_id}/cancel", {})
        await self.until(QUIET, self.chat_id)

    def of(self, run_id: str) -> Turn:
        """The run as it is stored."""
        with self.world.database() as database:
            return Turn(*database.execute(ROW, [run_id]).fetchall()[0])

    async def until(self, query: str, *names: object) -> None:
        """Return once the database says yes."""
        async with asyncio.timeout(60):
            with self.world.database() as database:
                while database.execute(query, names).fetchall() in ([(0,)], [(False,)]):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

    def worker(self, name: str) -> Worker:
        """The worker that claims under that name."""
        return next(worker for worker in self.world.workers if name == f"{worker.name}@faults")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: Any) -> AsyncIterator[World]:
    folder: Path = new_folder()
    try:
        async with running(Plan(webs=1, reapers=1, wishes=SCRIPT), folder) as world:
            yield world
    finally:
        remove(folder)


@pytest_asyncio.fixture(loop_scope="module")
async def talk(world: World) -> Talk:
    """A chat of some length, whose first turns are over."""
    await world.whole()
    [key] = await asyncio.to_thread(world.users, 1)
    talk = Talk(world, Api(world.ports[0], key))
    await talk.turn(f"{uuid4()} {WORDS}")  # no other chat's beginning
    await talk.until(QUIET, talk.chat_id)
    return talk


async def another(talk: Talk, worker: str) -> Talk:
    """A chat of somebody else's that this worker is warm for."""
    while True:
        [key] = await asyncio.to_thread(talk.world.users, 1)
        other = Talk(talk.world, Api(talk.world.ports[0], key))
        first = await other.turn(WORDS)
        await other.until(QUIET, other.chat_id)
        if first.worker == worker:
            return other


@asynccontextmanager
async def full(talk: Talk, worker: str) -> AsyncIterator[None]:
    """With answers in all of that worker's slots, of chats that it is warm for."""
    held: list[tuple[Talk, str]] = []
    while len(held) < SLOTS:
        other = await another(talk, worker)
        run_id = await other.ask("Think about it", first_token_ms=120_000)
        await talk.until(STREAMING, run_id)
        if other.of(run_id).worker == worker:
            held.append((other, run_id))
        else:  # on a busy machine it may be too slow to take what is kept for it
            await other.stop(run_id)
    yield
    for other, run_id in held:
        await other.stop(run_id)


async def test_its_turns_go_to_the_worker_that_has_what_was_said_before(talk: Talk) -> None:
    turns = [await talk.turn(f"Question {number}") for number in range(4)]

    assert len({turn.worker for turn in turns}) == 1
    assert all(turn.is_warm for turn in turns)
    assert [turn.route and turn.route["decision"] for turn in turns] == ["warm"] * 4


async def test_while_that_worker_is_full_a_turn_goes_elsewhere_and_its_row_says_why(talk: Talk) -> None:
    warm = await talk.turn("Where are you?")
    async with full(talk, warm.worker):
        elsewhere = await talk.turn("And now?")

    assert elsewhere.worker != warm.worker
    assert elsewhere.route is not None
    # At once, by how soon its slots came free of late, or when it had waited for as long as the prefix is worth.
    assert elsewhere.route["decision"] in {"busy", "late"}
    assert elsewhere.route["worker"] == warm.worker


async def test_killed_between_turns_it_costs_a_cold_prefill_once(talk: Talk) -> None:
    warm = await talk.turn("Where are you?")
    async with talk.worker(warm.worker).down(signal.SIGKILL):
        cold, after = await talk.turn("And now?"), await talk.turn("And then?")

    assert {cold.worker, after.worker}.isdisjoint({warm.worker})
    assert (cold.attempt, cold.is_warm, after.is_warm) == (1, False, True)


async def test_killed_within_a_turn_likewise(talk: Talk) -> None:
    run_id = await talk.ask("Go on and on", chars=2000)
    await talk.until(WRITTEN, run_id)
    victim = talk.of(run_id).worker
    async with talk.worker(victim).down(signal.SIGKILL):
        reading = Reading()
        await talk.api.read(f"/api/runs/{run_id}/stream", reading)
        cut, after = talk.of(run_id), await talk.turn("And then?")

    assert reading.text == "word " * 400
    assert (cut.attempt, cut.worker != victim, after.worker) == (2, True, cut.worker)
    assert after.is_warm


async def with_a_smaller_window(world: World) -> None:
    """Have the model's version another one, and the workers started anew, which read it."""
    with world.database() as database:
        for table in ("scheduler_model", "scheduler_modelversion"):
            database.execute(f"UPDATE {table} SET context_window = 2048")
    for worker in world.workers:
        async with worker.down(signal.SIGTERM):
            pass
    await world.whole()


async def test_a_summarys_worker_is_warm_for_the_first_turn_of_its_epoch(talk: Talk) -> None:
    await with_a_smaller_window(talk.world)
    before = await talk.turn(WORDS)
    for number in range(12):
        before = await talk.turn(f"{WORDS} {number}")
        await talk.until(QUIET, talk.chat_id)
        with talk.world.database() as database:
            epochs = database.execute(
                "SELECT warm_tokens FROM chat_summary WHERE chat_id = %s", [talk.chat_id]
            ).fetchall()
        if epochs:
            break
    first = await talk.turn("And now?")

    [(warm_tokens,)] = epochs
    assert first.worker == before.worker
    assert first.cached_tokens >= warm_tokens // BLOCK * BLOCK > 0
    assert first.input_tokens < before.input_tokens
