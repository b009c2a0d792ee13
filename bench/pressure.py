"""Users of a running product who keep a tier's queue filled, or who ask now and then."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.faults.world import World
from tests.sse_client import Api, Reading

LOOK_EVERY_S = 0.25
AT_ONCE = 4
THINK_S = 1.0  # between an answer and the next question
NO_LIMITS = """
    UPDATE scheduler_model SET queue_depth = 100000;
    UPDATE scheduler_tier SET queue_depth = 100000, concurrency = 10000, queue_deadline_s = 86400,
           shed_at_percent = 100, budget_tokens = 2000000000, refill_tokens_per_hour = 2000000000;
"""
SET_TIER = """
    UPDATE chat_user SET tier_id = %s FROM chat_apikey
     WHERE chat_apikey.user_id = chat_user.id AND digest = encode(sha256(%s::bytea), 'hex')
"""
OWNER = "SELECT user_id::text FROM chat_apikey WHERE digest = encode(sha256(%s::bytea), 'hex')"
WAITING = """
    SELECT count(*) FROM chat_run JOIN chat_chat ON chat_chat.id = chat_run.chat_id
      JOIN chat_apikey ON chat_apikey.user_id = chat_chat.owner_id
     WHERE status = 'queued' AND kind = 'reply' AND digest = encode(sha256(%s::bytea), 'hex')
"""


@dataclass(frozen=True)
class Answers:
    """How long answers are, in characters: a lognormal, cut."""

    median: float = 90
    sigma: float = 0.6
    most: int = 600
    dice: random.Random = field(default_factory=lambda: random.Random(1))

    def question(self) -> str:
        """Asks the scripted engine for such an answer."""
        chars = min(self.most, max(1, round(self.median * self.dice.lognormvariate(0, self.sigma))))
        return f"{self.dice.random()} [[script {json.dumps({'chars': chars})}]]"


@dataclass(frozen=True)
class User:
    """Somebody with a key."""

    world: World
    key: str
    answers: Answers

    @property
    def id(self) -> str:
        """As the admin's addresses have it."""
        with self.world.database() as database:
            return str(database.execute(OWNER, [self.key.encode()]).fetchall()[0][0])

    async def ask(self) -> str:
        """Ask in a new chat; returns the run's id."""
        return str((await Api(self.world.ports[0], self.key).ask(self.answers.question()))["run_id"])

    @asynccontextmanager
    async def pressing(self, depth: int) -> AsyncIterator[None]:
        """Keep so many runs waiting meanwhile; the first of them are there when the block begins."""
        await self._fill(depth)
        filling = asyncio.create_task(self._fill_for_ever(depth))
        try:
            yield
        finally:
            filling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await filling

    @asynccontextmanager
    async def asking(self, runs_per_s: float) -> AsyncIterator[list[str]]:
        """Ask at random, at such a rate, meanwhile; the list grows by the runs' ids."""
        run_ids: list[str] = []
        asking = asyncio.create_task(self._ask_for_ever(runs_per_s, run_ids))
        try:
            yield run_ids
        finally:
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asking

    @asynccontextmanager
    async def conversing(self, lanes: int) -> AsyncIterator[None]:
        """Ask one question after the other meanwhile, so many times over."""
        async with asyncio.TaskGroup() as tasks:
            conversing = [tasks.create_task(self._converse_for_ever()) for _ in range(lanes)]
            yield
            for lane in conversing:
                lane.cancel()

    async def _converse_for_ever(self) -> None:
        api = Api(self.world.ports[0], self.key)
        while True:
            asked = await api.ask(self.answers.question())
            await api.read(asked["stream"], Reading())
            await asyncio.sleep(self.answers.dice.expovariate(1 / THINK_S))

    async def _fill_for_ever(self, depth: int) -> None:
        while True:
            await self._fill(depth)
            await asyncio.sleep(LOOK_EVERY_S)

    async def _fill(self, depth: int) -> None:
        missing = depth - await asyncio.to_thread(self._waiting)
        while missing > 0:
            await asyncio.gather(*(self.ask() for _ in range(min(missing, AT_ONCE))))
            missing -= AT_ONCE

    async def _ask_for_ever(self, runs_per_s: float, run_ids: list[str]) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                await asyncio.sleep(self.answers.dice.expovariate(runs_per_s))
                tasks.create_task(self._note(run_ids))

    async def _note(self, run_ids: list[str]) -> None:
        run_ids.append(await self.ask())

    def _waiting(self) -> int:
        with self.world.database() as database:
            return int(database.execute(WAITING, [self.key.encode()]).fetchall()[0][0])


def users(world: World, tiers: Sequence[str], answers: Answers | None = None) -> list[User]:
    """A user of each of the tiers, without limits of their own."""
    keys = world.users(len(tiers))
    with world.database() as database:
        database.execute(NO_LIMITS)
        for key, tier in zip(keys, tiers, strict=True):
            database.execute(SET_TIER, [tier, key.encode()])
    return [User(world, key, answers or Answers()) for key in keys]
