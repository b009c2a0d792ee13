"""Primaries are failed over under open streams, killed and told to; readers see a pause, and the whole answer once."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from signal import SIGCONT, SIGKILL, SIGSTOP
from uuid import UUID

from redis.crc import key_slot

from inference.servers import asynchronous
from inference.streams import Delta, Entry, read_rest, run_key
from tests.cluster.nodes import Node, ValkeyCluster, in_order, until
from tests.long_form import times
from tests.sse_client import Api, Event, Reading
from tests.stack.cutting import Fate, Reader, Told
from tests.stack.stack import Stack
from tests.stack.test_cuts import assert_exact

ASKERS = 12
QUIET_S = 3.0
SCRIPT = {"chars": 150, "tokens_per_step": 1}


class Fault(StrEnum):
    """What befalls a primary that has a replica."""

    KILLED = "killed"
    RELIEVED = "told to hand over"
    SILENT = "silent"


FAULTS = [Fault.KILLED, Fault.RELIEVED, *[Fault.SILENT, Fault.KILLED] * times(0, long=6)]


@dataclass
class Steady(Reading):
    """A reading that stays, and the longest that it waited for more of an answer that had begun."""

    heard_at: float = 0.0
    longest_s: float = 0.0
    paused_at: float = 0.0

    def take(self, event: Event) -> None:
        """As a browser's page."""
        super().take(event)
        now = time.monotonic()
        if self.heard_at and now - self.heard_at > self.longest_s:
            self.longest_s, self.paused_at = now - self.heard_at, self.heard_at
        self.heard_at = now


class Patient(Api):
    """Comes back when it is told that streams cannot be read now, as browsers and our client do."""

    refused = 0

    async def read(self, path: str, reading: Reading, bytes_until_cut: int | None = None) -> int:
        """As any, but never 503."""
        while (status := await super().read(path, reading, bytes_until_cut)) == 503:
            self.refused += 1
            await asyncio.sleep(0.2)
        return status


@dataclass
class Seen:
    """What came of it."""

    runs: list[UUID] = field(default_factory=list)
    pauses: list[tuple[float, float, int]] = field(default_factory=list)  # when, how long, slot


async def test_every_reader_has_the_whole_answer_though_primaries_are_failed_over(
    scripted_stack: Stack, failing_over: ValkeyCluster, webs: Sequence[Api], figures: Callable[[str], None]
) -> None:
    cluster = failing_over
    seen, over = Seen(), asyncio.Event()
    patient = [Patient(api.door, scripted_stack.key) for api in webs]
    async with asyncio.TaskGroup() as asking:
        for number in range(ASKERS):
            asking.create_task(ask_until(over, patient, seen, number))
        for fault, pair in zip(FAULTS, itertools.cycle(cluster.pairs), strict=False):
            await asyncio.sleep(QUIET_S)
            began_at = time.monotonic()
            took_s = await asyncio.to_thread(befall, fault, cluster, *in_order(pair))
            await asyncio.sleep(QUIET_S)
            figures(f"primary {fault}: replaced in {took_s:.1f} s, {paused(seen, cluster, pair, began_at)}")
        over.set()
    async with asynchronous(cluster.url) as redis:
        holes = [hole(await read_rest(redis, run_id)) for run_id in seen.runs]
    figures(f"  {len(holes)} runs, two readers each; {sum(map(bool, holes))} streams lack {sum(holes)} characters")
    figures(f"  told to come back later: {sum(api.refused for api in patient)} times")

    assert len(seen.runs) > ASKERS


def befall(fault: Fault, cluster: ValkeyCluster, primary: Node, replica: Node) -> float:
    """Let it happen, and have the pair whole again; returns in how many seconds the replica stood in."""
    began_at = time.monotonic()
    match fault:
        case Fault.KILLED:
            primary.signal(SIGKILL)
        case Fault.SILENT:
            primary.signal(SIGSTOP)
        case Fault.RELIEVED:
            replica.says("CLUSTER FAILOVER")
    until(lambda: replica.is_primary)
    took_s = time.monotonic() - began_at
    match fault:
        case Fault.KILLED:
            primary.start()
        case Fault.SILENT:
            time.sleep(2 * QUIET_S)
            primary.signal(SIGCONT)
    cluster.settle()
    return took_s


def paused(seen: Seen, cluster: ValkeyCluster, pair: tuple[Node, Node], since: float) -> str:
    """The longest pauses of readers that began about then, of that primary's streams and of the others'."""
    late = [(slot, pause_s) for at, pause_s, slot in seen.pauses if at + pause_s > since]
    its = [pause_s for slot, pause_s in late if set(cluster.primary_of(slot)) == set(pair)]
    others = [pause_s for slot, pause_s in late if set(cluster.primary_of(slot)) != set(pair)]
    return f"longest pause of its streams {max(its, default=0):.1f} s, of others {max(others, default=0):.1f} s"


async def ask_until(over: asyncio.Event, webs: Sequence[Api], seen: Seen, number: int) -> None:
    """Ask and read again and again, and compare each answer."""
    while not over.is_set():
        await ask_and_read(webs, seen, random.Random(f"{number}/{len(seen.runs)}"))


async def ask_and_read(webs: Sequence[Api], seen: Seen, dice: random.Random) -> None:
    """One run with a reader that stays and one that is cut off now and then."""
    asked = await webs[0].ask(f"{dice.random()} [[script {json.dumps(SCRIPT)}]]")
    run_id = UUID(asked["run_id"])
    steady, cut = Steady(), Reader(webs, Told(run_id, Fate.KEPT, 0.0), asked["stream"], dice, may_be_late=False)
    await asyncio.gather(stay(webs[1], asked["stream"], steady), cut.read())
    page = await webs[0].get(f"/api/chats/{asked['chat_id']}/messages")
    for reading in (steady, cut.reading):
        assert_exact(reading, page["results"][-1]["content"])
        assert not [event for event in reading.events if event.name == "reset"]
    seen.runs.append(run_id)
    seen.pauses.append((steady.paused_at, steady.longest_s, key_slot(run_key(run_id).encode())))


async def stay(api: Api, path: str, reading: Reading) -> None:
    """Read to the end, over as many connections as it takes."""
    while reading.ended is None:
        assert await api.read(path, reading) == 200


def hole(entries: Sequence[Entry]) -> int:
    """How many characters of the answer the stream lacks."""
    end = missing = 0
    for entry in entries:
        if isinstance(entry.event, Delta):
            missing += max(0, entry.event.offset - end)
            end = entry.event.end
    return missing
