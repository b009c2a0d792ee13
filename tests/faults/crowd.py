"""Many users who ask, read and stop, come what may, and keep a record of all that they are told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import UUID

from tests.faults.client import DELETE, NO_ANSWER, NOT_NOW, Answered, Client, Unserved
from tests.faults.records import Asked, Read, Request
from tests.sse_client import Event, EventParser, Reading

KEY_HEADER = "Idempotency-Key"
END_WITHIN_S = 240.0
COME_BACK_AFTER_S = 0.2
WORTH_WAITING_S = 60.0  # of an exhausted budget; all else passes sooner


class Stop(StrEnum):
    """When somebody stops a run, from another client than its reader's."""

    NEVER = "never"
    AT_ONCE = "racing the claim"
    MIDWAY = "at some moment"
    AT_THE_END = "racing the end"


@dataclass(frozen=True, slots=True)
class Wish:
    """What one question asks for, and how its user behaves."""

    text: str
    chars: int
    stop: Stop
    stop_after_s: float
    double: bool  # sends the question twice at once, under one key
    second_reader: bool  # another one reads it all from the beginning
    goes_on: bool  # in the same chat as the one before
    is_cut: bool  # its reader's connections break now and then
    seed: int
    discards: bool = False  # nobody reads it: its chat is deleted while it waits or runs

    @classmethod
    def draw(cls, dice: random.Random, number: str) -> Wish:
        """The next one; the same dice draw the same ones."""
        chars = dice.choice((40, dice.randrange(60, 250), dice.randrange(100, 400), dice.randrange(250, 700)))
        script = json.dumps({"chars": chars, "split_characters": dice.random() < 0.2})
        return cls(
            text=f"Question {number}. [[script {script}]]",
            chars=chars,
            stop=dice.choices(list(Stop), weights=(82, 6, 6, 6))[0],
            stop_after_s=dice.random() * 6,
            double=dice.random() < 0.1,
            second_reader=dice.random() < 0.2,
            goes_on=dice.random() < 0.2,
            is_cut=dice.random() < 0.6,
            seed=dice.randrange(1 << 32),
            discards=dice.random() < 0.06,
        )


class TimedReading(Reading):
    """What a reader pieces together, and the longest time between two pieces."""

    longest_pause_s = 0.0
    _last_at: float | None = None

    def take(self, event: Event) -> None:
        """Take one event as a browser's page does. Raises AssertionError where it does not fit what is there."""
        super().take(event)
        now = time.monotonic()
        if self._last_at is not None:
            self.longest_pause_s = max(self.longest_pause_s, now - self._last_at)
        if event.name == "delta":
            self._last_at = now


@dataclass
class Seen:
    """What all users saw."""

    requests: list[Request] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    discarded: set[UUID] = field(default_factory=set)
    reads: list[Read] = field(default_factory=list)
    stops: Counter[str] = field(default_factory=Counter)
    reading_now: set[UUID] = field(default_factory=set)
    unserved: int = 0


class Crowd:
    """So many users, each with one question after the other."""

    def __init__(self, ports: Sequence[int], keys: Sequence[str], seed: int) -> None:
        self.seen = Seen()
        self._is_closing = asyncio.Event()
        # Each user's dice are his own: what others meet does not change what he does.
        self._users = [
            User(number, Client(ports, key, random.Random(f"{seed} {number} ports"), self.seen.requests), self.seen)
            for number, key in enumerate(keys)
        ]
        self._dice = [random.Random(f"{seed} {number}") for number in range(len(keys))]

    def close(self) -> None:
        """Have everybody read to the end of what was asked, and no more."""
        self._is_closing.set()

    async def run(self) -> None:
        """Ask until closed, then read to the end."""
        async with asyncio.TaskGroup() as group:
            for user, dice in zip(self._users, self._dice, strict=True):
                group.create_task(user.live(dice, self._is_closing))


class User:
    """One of them."""

    def __init__(self, number: int, client: Client, seen: Seen) -> None:
        self._number = number
        self._client = client
        self._seen = seen
        self._chat: str | None = None
        self._in_chat: set[UUID] = set()

    async def live(self, dice: random.Random, is_over: asyncio.Event) -> None:
        """Ask and read, and look at what is there, until it is over."""
        await asyncio.sleep(dice.random() * 2)
        count = 0
        while not is_over.is_set():
            count += 1
            wish = Wish.draw(dice, f"{self._number}-{count}")
            try:
                await self.ask_and_read(wish)
                await self._look_around()
            except Unserved:
                self._seen.unserved += 1

    async def ask_and_read(self, wish: Wish) -> None:
        """One question, with all that its user does about it. Raises `Unserved`."""
        asked = await self._ask(wish)
        if asked is None:
            return
        if wish.discards:
            await self._discard(wish.stop_after_s)
            return
        run_id, stream = UUID(asked["run_id"]), asked["stream"]
        ended = asyncio.Event()
        first = TimedReading()
        self._seen.reading_now.add(run_id)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read(run_id, stream, first, _Cuts(wish.seed, wish.is_cut), ended))
                if wish.stop is not Stop.NEVER:
                    group.create_task(self._stop(run_id, wish, first, ended))
                if wish.second_reader:
                    group.create_task(self._read_late(run_id, stream, _Cuts(wish.seed + 1, wish.is_cut)))
        finally:
            self._seen.reading_now.discard(run_id)

    async def _ask(self, wish: Wish) -> dict[str, Any] | None:
        if self._chat is None or not wish.goes_on:
            opened = await self._insist("open", "POST", "/api/chats", {})
            self._chat, self._in_chat = opened["id"] if opened else None, set()
        if self._chat is None:
            return None
        key = f"{self._number}-{wish.seed:08x}-{random.Random(wish.seed).getrandbits(64):016x}"
        path, headers = f"/api/chats/{self._chat}/messages", {KEY_HEADER: key}
        sends = [self._insist("ask", "POST", path, {"content": wish.text}, headers) for _ in range(1 + wish.double)]
        answers = await asyncio.gather(*sends)
        taken = [answer for answer in answers if answer]
        self._seen.asked += [Asked(key, UUID(answer["run_id"])) for answer in taken]
        self._in_chat |= {UUID(answer["run_id"]) for answer in taken}
        return taken[0] if taken else None

    async def _discard(self, after_s: float) -> None:
        """Delete the chat, whatever happens in it just now."""
        await asyncio.sleep(after_s)
        self._seen.discarded |= self._in_chat
        path, self._chat = f"/api/chats/{self._chat}", None
        await self._insist(DELETE, "DELETE", path)
        self._seen.stops["chat deleted under its run"] += 1

    async def _insist(
        self, what: str, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> dict[str, Any] | None:
        """Repeat what is refused for now, as long as it is worth it; the answer's JSON, None where it stays refused."""
        give_up_at = time.monotonic() + END_WITHIN_S
        while time.monotonic() < give_up_at:
            answered = await self._client.call(what, method, path, body, headers)
            if answered.is_served:
                served: dict[str, Any] = answered.body
                return served
            if _is_final(answered):
                return None
            await asyncio.sleep(answered.not_now_s)
            if answered.retry_after_s > WORTH_WAITING_S:
                return None
        return None

    async def _read(self, run_id: UUID, path: str, reading: TimedReading, cuts: _Cuts, ended: asyncio.Event) -> None:
        """Read to the end, over connections of which some are cut on purpose."""
        broke = ""
        give_up_at = time.monotonic() + END_WITHIN_S
        try:
            while not (reading.ended or broke) and time.monotonic() < give_up_at:
                broke = await self._read_on(path, reading, cuts.draw())
                if reading.ended is None:
                    await asyncio.sleep(COME_BACK_AFTER_S)
        finally:
            ended.set()
            gave_up = reading.ended is None and not broke
            read = Read(run_id, reading.text, reading.events, broke, gave_up, reading.longest_pause_s)
            self._seen.reads.append(read)

    async def _read_late(self, run_id: UUID, path: str, cuts: _Cuts) -> None:
        await asyncio.sleep(cuts.late_s)
        await self._read(run_id, path, TimedReading(), cuts, asyncio.Event())

    async def _read_on(self, path: str, reading: TimedReading, until_byte: int | None) -> str:
        """One connection's worth; returns what did not fit, if anything."""
        async with self._client.stream(path, reading.last_id) as answer:
            if answer is None:
                return ""
            if answer.status == 204:
                return "" if reading.ended else "204 before the end"
            parser, left = EventParser(), until_byte
            try:
                async for chunk in answer.chunks():
                    for event in parser.feed(chunk if left is None else chunk[:left]):
                        reading.take(event)
                    if left is not None and (left := left - len(chunk)) <= 0:
                        return ""
            except NO_ANSWER:
                return ""
            except AssertionError as misfit:
                return f"{misfit.args}"
        return ""

    async def _stop(self, run_id: UUID, wish: Wish, reading: TimedReading, ended: asyncio.Event) -> None:
        match wish.stop:
            case Stop.MIDWAY:
                await _wait(ended, wish.stop_after_s)
            case Stop.AT_THE_END:
                while not ended.is_set() and len(reading.text) < wish.chars - 2:
                    await _wait(ended, 0.01)
        with contextlib.suppress(Unserved):
            await self._insist("cancel", "POST", f"/api/runs/{run_id}/cancel", {})
        self._seen.stops[f"cancel {wish.stop}"] += 1

    async def _look_around(self) -> None:
        await self._insist("list", "GET", "/api/chats?limit=5")
        if self._chat is not None:
            await self._insist("history", "GET", f"/api/chats/{self._chat}/messages")


class _Cuts:
    """How many bytes a reader's connections bring before they break on purpose."""

    def __init__(self, seed: int, is_cut: bool) -> None:
        self._dice = random.Random(seed)
        self._is_cut = is_cut
        self.late_s = self._dice.random() * 8

    def draw(self) -> int | None:
        """Of the next one; None where it holds."""
        until_byte = self._dice.choice((None, self._dice.randrange(1, 3000)))
        return until_byte if self._is_cut else None


def _is_final(answered: Answered) -> bool:
    """Whether it is no use to ask again: only what is refused for now gets better."""
    return answered.status not in NOT_NOW


async def _wait(event: asyncio.Event, at_most_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(at_most_s):
            await event.wait()
