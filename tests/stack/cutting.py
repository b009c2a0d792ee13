"""Schedules of cuts: how often a reader's connection breaks, where, what its stream suffers, and who counts it."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self, cast
from uuid import UUID

from redis.asyncio import Redis

from inference.streams import EntryId, run_key
from tests.sse_client import Api, Reading, abandon

NAP_S = 0.3
STRIKES_WITHIN_S = 2.5
MAX_CALLS_BEFORE_LATE = 5


class Fate(StrEnum):
    """What befalls a run's stream, and when."""

    KEPT = "kept"
    DELETED_LIVE = "deleted while live"
    EXPIRED_LIVE = "expired while live"
    DELETED_ENDED = "deleted after the end"
    EXPIRED_ENDED = "expired after the end"
    FLUSHED = "flushed with all others"


CALM = tuple(fate for fate in Fate if fate is not Fate.FLUSHED)


@dataclass(frozen=True, slots=True)
class Cut:
    """One connection: which web process is asked, how many bytes of events it brings, and the pause before the next."""

    web: int
    is_abandoned: bool  # hung up before the answer
    until_byte: int | None  # None: it holds
    nap_s: float

    @classmethod
    def draw(cls, dice: random.Random, webs: int) -> Self:
        """The next one. The same dice draw the same schedule, whatever the readers meet."""
        return cls(
            web=dice.randrange(webs),
            is_abandoned=dice.random() < 0.05,
            until_byte=dice.choice((0, dice.randrange(1, 60), dice.randrange(1, 400), dice.randrange(1, 3000), None)),
            nap_s=dice.random() * NAP_S if dice.random() < 0.3 else 0.0,
        )


@dataclass
class Told:
    """A run as its readers meet it: its stream's fate, and what they counted."""

    run_id: UUID
    fate: Fate
    strikes_after_s: float
    counts: Counter[str] = field(default_factory=Counter)
    over: asyncio.Event = field(default_factory=asyncio.Event)  # a reader has met the end
    settled: asyncio.Event = field(default_factory=asyncio.Event)  # and fate has struck

    @property
    def is_gone(self) -> bool:
        """Whether the run is over and its stream lost, so that only Postgres knows the text."""
        return self.settled.is_set() and self.fate in {Fate.DELETED_ENDED, Fate.EXPIRED_ENDED}

    async def suffer(self, redis: Redis) -> None:
        """Let fate strike, while the run is live or after its end."""
        if self.fate in {Fate.DELETED_LIVE, Fate.EXPIRED_LIVE, Fate.FLUSHED}:
            await asyncio.sleep(self.strikes_after_s)
            # There is none while it waits for a slot, or where another's flush was.
            while not (self.over.is_set() or await redis.exists(run_key(self.run_id))):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            await self._strike(redis)
            await self.over.wait()
        else:
            await self.over.wait()
            await self._strike(redis)
        self.settled.set()

    async def _strike(self, redis: Redis) -> None:
        """Counts only where there was a stream to lose, live or ended as the fate says."""
        async with redis.pipeline(transaction=True) as pipe:
            pipe.xrevrange(run_key(self.run_id), count=1)
            match self.fate:
                case Fate.DELETED_LIVE | Fate.DELETED_ENDED:
                    pipe.delete(run_key(self.run_id))
                case Fate.EXPIRED_LIVE | Fate.EXPIRED_ENDED:
                    pipe.pexpire(run_key(self.run_id), 1)
            last = cast(list[tuple[bytes, Any]], (await pipe.execute())[0])
        if self.fate is Fate.FLUSHED:
            await redis.flushdb()  # behind it, since a cluster is not emptied in one transaction
        is_ended = bool(last) and EntryId.parse(last[0][0]) == EntryId.terminal(1)
        self.counts[self.fate] += bool(last) and is_ended == (self.fate in {Fate.DELETED_ENDED, Fate.EXPIRED_ENDED})


class Reader:
    """Reads one run to its end over connections that break as its dice say."""

    def __init__(self, webs: Sequence[Api], told: Told, path: str, dice: random.Random, *, may_be_late: bool) -> None:
        self._webs = webs
        self._told = told
        self._path = path
        self._dice = dice
        # Comes back only when all is over, and finds what fate has left.
        is_late = dice.random() < 0.25 and may_be_late
        self._late_at = dice.randrange(MAX_CALLS_BEFORE_LATE) if is_late else None
        self.reading = Reading()

    async def read(self) -> None:
        """Read to the end."""
        before: Cut | None = None
        for call in itertools.count():
            if call == self._late_at:
                await self._told.settled.wait()
            cut = Cut.draw(self._dice, len(self._webs))
            await self._connect(cut)
            self._count(cut, before)
            if self.reading.ended:
                break
            before = cut
            await asyncio.sleep(cut.nap_s)
        self._told.over.set()

    async def read_again(self) -> int:
        """Come back with the last event's id; returns the status."""
        await self._told.settled.wait()
        self._told.counts["after the end"] += 1
        return await self._webs[self._dice.randrange(len(self._webs))].read(self._path, self.reading)

    async def _connect(self, cut: Cut) -> None:
        api = self._webs[cut.web]
        self._told.counts["with the stream gone"] += self._told.is_gone
        if cut.is_abandoned:
            await abandon(api.door, self._path, api.headers | self.reading.header)
        else:
            status = await api.read(self._path, self.reading, cut.until_byte)
            assert status == 200, (self.reading.last_id, self.reading.refusal)

    def _count(self, cut: Cut, before: Cut | None) -> None:
        counts = self._told.counts
        counts["connections"] += 1
        counts["from another web process"] += before is not None and before.web != cut.web
        if self.reading.ended is None:
            counts["while live"] += not self._told.over.is_set()
            counts["before the answer"] += cut.is_abandoned
            counts["before the first id"] += self.reading.last_id is None
            counts["inside an event"] += not cut.is_abandoned and self.reading.is_cut_inside
            counts["twice in a row"] += before is not None and not before.nap_s
