"""Readers of runs whose streams lose entries in every way, without any server: a model of workers, Redis and rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from chat.emitted import standing
from chat.streaming.place import Gap, Place, bridge, conclude, step
from chat.streaming.written import Piece, Written, fold
from inference.streams import Delta, Ended, Entry, EntryId, Event, Reset, Started

READERS = 3


@dataclass
class Worker:
    """An attempt: its text, what it has yet to tell, and how much it has put by."""

    attempt: int
    text: str = ""
    put_by: int = 0
    seq: int = 0
    has_resumed: bool = False
    outbox: list[Event] = field(default_factory=list)


class World:
    """One run: its stream, its row and checkpoints, its present worker and those that do not know they are past."""

    def __init__(self) -> None:
        self.stream: list[Entry] = []
        self.top = EntryId(0, 0)
        self.pieces: list[Piece] = []
        self.resumed_at: dict[int, int] = {}
        self.ended: Ended | None = None
        self.workers = [Worker(1, has_resumed=True, outbox=[Started(1, "m")])]

    @property
    def worker(self) -> Worker:
        return self.workers[-1]

    def written(self) -> Written:
        text = self.worker.text if self.ended else fold(self.pieces, self.resumed_at)
        return Written(self.worker.attempt, text, dict(self.resumed_at), self.ended)

    def say(self, worker: Worker, length: int) -> None:
        """New text, of which every attempt's differs."""
        if worker.has_resumed and not self.ended:
            fresh = "".join(chr(0x4E00 + 500 * worker.attempt + len(worker.text) + i) for i in range(length))
            worker.outbox.append(Delta(fresh, len(worker.text)))
            worker.text += fresh

    def send(self, worker: Worker) -> None:
        """XADD, refused at or below the top: then the worker is fenced off."""
        if not worker.outbox:
            return
        event = worker.outbox.pop(0)
        match event:
            case Started():
                entry_id = EntryId.fence(worker.attempt)
            case Ended():
                entry_id = EntryId.terminal(worker.attempt)
            case _:
                worker.seq += 1
                entry_id = EntryId(worker.attempt, worker.seq)
        if entry_id > self.top:
            self.stream.append(Entry(entry_id, event))
            self.top = entry_id
        else:
            worker.outbox.clear()

    def put_by(self) -> None:
        """A lease is renewed."""
        worker = self.worker
        if not self.ended and len(worker.text) > worker.put_by:
            self.pieces.append(Piece(worker.attempt, worker.put_by, worker.text[worker.put_by :]))
            worker.put_by = len(worker.text)

    def claim(self) -> None:
        """Another worker takes over."""
        if not self.ended:
            attempt = self.worker.attempt + 1
            self.workers.append(Worker(attempt, outbox=[Started(attempt, "m")]))

    def resume(self) -> None:
        """The present worker reads what was emitted, and tells how it goes on."""
        worker = self.worker
        if worker.has_resumed or worker.outbox:
            return
        streamed, by = self._streamed()
        saved = (fold(self.pieces, self.resumed_at), self.pieces[-1].attempt if self.pieces else 0)
        worker.text, by = max((streamed, by), saved, key=lambda emitted: (emitted[1], len(emitted[0])))
        agreed = len(worker.text)
        if streamed.startswith(worker.text) or worker.text.startswith(streamed):
            rest = worker.text[len(streamed) :]
            worker.outbox += [Delta(rest, len(streamed))] if rest else []
            worker.outbox.append(Reset(agreed))
        else:
            agreed = 0
            worker.outbox += [Reset(0), Delta(worker.text, 0)]
        worker.put_by, worker.has_resumed = 0, True
        if worker.text.startswith(saved[0]) or saved[0].startswith(worker.text):
            worker.put_by = min(len(saved[0]), len(worker.text))
        self.resumed_at[worker.attempt] = agreed

    def _streamed(self) -> tuple[str, int]:
        """What the stream tells up to a gap, without what later attempts did not go on from: zombies' entries too."""
        text, attempt = "", 0
        for entry in self.stream:
            known = {later: offset for later, offset in self.resumed_at.items() if later <= entry.id.attempt}
            text = text[: standing(known, attempt, len(text))]
            match entry.event:
                case Delta(fresh, offset) if offset == len(text):
                    text, attempt = text + fresh, entry.id.attempt
                case Reset(offset):
                    text = text[:offset]
        return text[: standing(self.resumed_at, attempt, len(text))], attempt

    def finish(self) -> None:
        """The row's end; its entry is sent like any other."""
        worker = self.worker
        if worker.has_resumed and not worker.outbox and not self.ended:
            data = {"message_id": "x", "chars": len(worker.text)}
            self.ended = Ended("done", data)
            worker.outbox.append(self.ended)

    def lose_last(self, count: int) -> None:
        """Redis is back without its last entries."""
        self.stream = self.stream[: max(0, len(self.stream) - count)]
        self.top = self.stream[-1].id if self.stream else EntryId(0, 0)

    def trim(self, count: int) -> None:
        """XTRIM leaves the top as it is."""
        del self.stream[:count]


@dataclass
class Reader:
    """A page and the follower that serves it."""

    place: Place = field(default_factory=Place)
    text: str = ""
    cursor: EntryId = field(default_factory=lambda: EntryId.fence(0))
    is_lost: bool = False
    ended: Ended | None = None

    def take(self, world: World, place: Place, event: Event | None) -> None:
        """Tell the page, which finds that ids grow and that text fits."""
        before, self.place = self.place, place
        if event is None:
            return
        assert self.ended is None
        assert (place.entry, place.offset) > (before.entry or EntryId(0, 0), before.offset)
        match event:
            case Delta(text, offset):
                assert offset == len(self.text)
                self.text += text
            case Reset(offset):
                assert offset < len(self.text)
                self.text = self.text[:offset]
            case Ended():
                self.ended = event
        assert place.offset == len(self.text)
        if place.entry and place.entry.attempt == place.heard <= len(world.workers):
            assert world.workers[place.heard - 1].text.startswith(self.text)

    def hear(self, world: World) -> None:
        """Take what the hub reads now."""
        behind = [entry for entry in world.stream if entry.id > self.cursor]
        if self.ended or not behind:
            return
        self.cursor = behind[-1].id
        before = self.place
        if self._take_all(world, behind):
            self.is_lost = self.is_lost and self.place == before
        elif not self.is_lost or isinstance(behind[-1].event, Ended):
            self._rejoin(world)
            if self.is_lost:
                self.bridge(world, world.written())

    def _take_all(self, world: World, entries: list[Entry]) -> bool:
        for entry in entries:
            if not self.place.has_passed(entry.id):
                try:
                    self.take(world, *step(self.place, entry))
                except Gap:
                    return False
        return True

    def _rejoin(self, world: World) -> None:
        behind = [entry for entry in world.stream if not self.place.has_passed(entry.id)]
        self.is_lost = not (behind and self._take_all(world, behind))

    def bridge(self, world: World, written: Written) -> None:
        """Take what Postgres had."""
        if self.ended:
            return
        if written.ended:
            for place, event in conclude(self.place, written, written.ended):
                self.take(world, place, event)
        else:
            for place, event_or_none in bridge(self.place, written):
                self.take(world, place, event_or_none)
            self._rejoin(world)

    def come_back(self, world: World) -> None:
        """Another connection, to another process."""
        if self.ended:
            return
        self.place = Place.parse(str(self.place)) if self.place.entry else Place()
        self.text = self.text if self.place.entry else ""
        self.cursor, self.is_lost = self.place.entry or EntryId(0, 0), not world.stream
        self.hear(world)
        if world.ended:
            self.bridge(world, world.written())


# How often each comes, of a hundred acts.
ACTS = {
    "say": 22, "hear": 22, "send": 8, "zombie": 8, "put by": 7, "look": 8, "come back": 8, "claim": 2, "resume": 3,
    "take over": 4, "lose last": 3, "trim": 2, "flush": 2, "finish": 1,
}  # fmt: skip


@pytest.mark.parametrize("seed", range(30))
def test_whatever_streams_lose_every_reader_has_the_message_and_one_end(seed: int) -> None:
    for schedule in range(100):
        suffer(random.Random(f"{seed}/{schedule}"))


def suffer(dice: random.Random) -> None:
    """Play a schedule, and compare at the end."""
    world = World()
    readers = [Reader() for _ in range(READERS)]
    looks: list[Written] = []
    for act in dice.choices(list(ACTS), list(ACTS.values()), k=dice.randrange(20, 90)):
        looks.append(world.written())
        play(world, readers, looks, act, dice)
    bring_to_its_end(world)
    for reader in readers:
        reader.come_back(world)
        assert (reader.ended, reader.text) == (world.ended, world.worker.text)
        assert reader.place.is_at_end


def play(world: World, readers: list[Reader], looks: list[Written], act: str, dice: random.Random) -> None:
    """One act."""
    few = dice.randint(1, 4)
    acts: dict[str, Callable[[], None]] = {
        "say": lambda: say(world, world.worker, few),
        "hear": lambda: dice.choice(readers).hear(world),
        "send": lambda: world.send(world.worker),
        "zombie": lambda: say(world, world.workers[max(0, len(world.workers) - 1 - few)], few),
        "put by": world.put_by,
        "look": lambda: look(world, readers, looks[max(0, len(looks) - few * 4)]),
        "come back": lambda: dice.choice(readers).come_back(world),
        "claim": world.claim,
        "resume": world.resume,
        "take over": lambda: take_over(world),
        "lose last": lambda: world.lose_last(few),
        "trim": lambda: world.trim(few),
        "flush": lambda: world.lose_last(len(world.stream)),
        "finish": world.finish,
    }
    acts[act]()


def say(world: World, worker: Worker, length: int) -> None:
    """New text, and an entry: this, or what was to be told before."""
    world.say(worker, length)
    world.send(worker)


def look(world: World, readers: list[Reader], seen: Written) -> None:
    """The watch tells lost readers what Postgres answered, maybe before they were lost."""
    for reader in readers:
        if reader.is_lost:
            reader.bridge(world, seen)


def take_over(world: World) -> None:
    """The steps of a new attempt, one upon the other."""
    world.claim()
    world.send(world.worker)
    world.resume()


def bring_to_its_end(world: World) -> None:
    """The present worker tells what it has, and ends."""
    for _ in range(3):
        while world.worker.outbox:
            world.send(world.worker)
        world.resume()
        world.finish()
    assert world.ended
