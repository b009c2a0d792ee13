"""The product for measuring: no limits, a scripted engine, and the server under test alone on its core."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from bench.pressure import NO_LIMITS
from bench.serving.cores import Cores
from bench.serving.job import Lane
from tests.faults.parts import Part
from tests.faults.world import Plan, World, new_folder, remove, running

USERS = 50
GENEROUS = """
    UPDATE scheduler_tier SET max_output_tokens = 100000, chat_turns = 1000000, concurrency = 1000000;
    UPDATE scheduler_model SET max_output_tokens = 100000;
"""
NEW_CHATS = """
    WITH owner AS (
        SELECT user_id FROM chat_apikey WHERE digest = encode(sha256(%(key)s::bytea), 'hex')
    )
    INSERT INTO chat_chat (id, title, owner_id)
    SELECT gen_random_uuid(), 'a chat', user_id FROM owner, generate_series(1, %(count)s) RETURNING id::text
"""
LIVE = "SELECT count(*) FROM chat_run WHERE status IN ('queued', 'streaming')"
TIMES = """
    SELECT id::text, extract(epoch FROM created_at)::float, extract(epoch FROM released_at)::float,
           extract(epoch FROM started_at)::float
      FROM chat_run WHERE id = ANY(%s) AND started_at IS NOT NULL AND released_at IS NOT NULL
"""
QUIET_WITHIN_S = 180.0


@dataclass(frozen=True)
class Times:
    """What a run's row says of its way to a worker, in seconds of the wall clock.

    Its `first_token_at` is not among them: an age that the worker takes off the time of a later statement, and so late
    by as long as that was on its way.
    """

    created_at: float
    released_at: float
    started_at: float


@dataclass
class Site:
    """A running product, and users of it."""

    world: World
    keys: Sequence[str] = field(default_factory=list)

    @property
    def port(self) -> int:
        """Of the web process."""
        return self.world.ports[0]

    @property
    def tested(self) -> Mapping[str, int]:
        """The process ids of what stands on the server's core."""
        return {"web": self.world.webs[0].pid, "worker": self.world.workers[0].pid}

    @property
    def processes(self) -> Sequence[Part]:
        """Ours, without the servers behind them."""
        return (*self.world.webs, *self.world.workers, *self.world.reapers)

    def lanes(self, count: int) -> Sequence[Lane]:
        """As many new chats, made past the product, of all users in turn."""
        each = -(-count // len(self.keys))
        rows = [self.sql(NEW_CHATS, {"key": key.encode(), "count": each}) for key in self.keys]
        by_turn = zip(*rows, strict=True)
        return [Lane(key, chat) for turn in by_turn for key, (chat,) in zip(self.keys, turn, strict=True)][:count]

    def times(self, run_ids: Sequence[str]) -> Mapping[str, Times]:
        """Of those runs that a worker has begun."""
        rows = self.sql(TIMES, [[UUID(run_id) for run_id in run_ids]])
        return {run_id: Times(*times) for run_id, *times in rows}

    def sql(self, statement: str, values: Any = None) -> list[Any]:
        """Rows of a statement."""
        with self.world.database() as database:
            cursor = database.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    async def quiet(self) -> None:
        """Return when no run is live. Raises `TimeoutError` when that takes minutes."""
        async with asyncio.timeout(QUIET_WITHIN_S):
            while self.sql(LIVE) != [(0,)]:  # noqa: ASYNC110  (nobody to wake us)
                await asyncio.sleep(0.1)


@asynccontextmanager
async def opened(wishes: Mapping[str, str], cores: Cores) -> AsyncIterator[Site]:
    """A product whose processes read `wishes` from the environment. Raises `StackBroken`."""
    folder = new_folder()
    through = ("bench.serving.pinned", str(cores.server))
    plan = Plan(1, webs=1, reapers=1, wishes=wishes, through=through, is_watched=False)
    try:
        async with running(plan, folder) as world:
            site = Site(world, world.users(USERS))
            site.sql(NO_LIMITS)
            site.sql(GENEROUS)
            yield site
    finally:
        remove(folder)
