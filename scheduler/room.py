"""Where admitted runs wait for release to their Celery queue: one room a model and tier, fair between its users.

The order is by a virtual token counter for each user, which a run's cost raises when it comes and what it did not use
lowers when it has ended: Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024. Between two users of
whom each has runs waiting all along, the tokens served differ by at most 2 * k * U over any time, where U is the
largest cost and k how many live runs each may have; docs/decisions/0012 derives it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from redis import Redis

LUA = Path(__file__).parent / "lua"
# One script: a worker that has taken a run says so by the call by which it wants the next.
ORDER = (LUA / "order.lua").read_text()
RELEASE = (LUA / "drain.lua").read_text() + ORDER + (LUA / "release.lua").read_text()
POSITION = (LUA / "position.lua").read_text()
MISSING = (LUA / "missing.lua").read_text()
REMOVE = ORDER + (LUA / "remove.lua").read_text()

# In place of a tier's slug, which cannot begin so: runs that nobody waits for, titles and summaries, of all tiers.
BACKGROUND = "_background"

# A script holds up everybody else while it runs.
PAGE = 1000


def queue_name(model: str, tier: str) -> str:
    """The Celery queue behind a room; with the Redis transport also the key of its list."""
    return f"gen.{model}.{tier}"


def is_background(queue: str) -> bool:
    """Whether nobody waits for the runs of that queue."""
    return queue.endswith(f".{BACKGROUND}")


def room_key(model: str, tier: str) -> str:
    """The key of a room's sorted set."""
    return f"room:{model}:{tier}"


def drain_key(model: str) -> str:
    """The key of the hash that says how fast runs leave for the model's workers; see `lua/drain.lua`."""
    return f"drain:{model}"


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A run that is to wait, whose it is, and the most tokens that it may come to.

    It `was_charged` when its user's counter has gone up by its cost, before its message was lost: it goes to the front.
    """

    run_id: UUID
    user_id: UUID
    cost: int
    was_charged: bool = False


@dataclass(frozen=True, slots=True)
class Departure:
    """A run on its way to a worker; its cost is 0 when the release before this one let it in."""

    run_id: UUID
    cost: int


@dataclass(frozen=True, slots=True)
class Correction:
    """What a user's run that has ended was charged, in place of its cost."""

    user_id: UUID
    cost: int
    charge: int


@dataclass(frozen=True, slots=True)
class Release:
    """Who was taken out, first come first, and how many wait in each tier of the model: those just taken included."""

    taken: list[Departure]
    waiting: Mapping[str, int] = field(default_factory=dict)


class Room:
    """One model's and tier's waiting runs, in the broker's Redis. Lost with it, and made anew from the rows.

    `clock` tells milliseconds since the epoch; without one it is Redis's own time.
    """

    def __init__(self, redis: Redis, model: str, tier: str, clock: Callable[[], int] | None = None) -> None:
        self._redis = redis
        self._keys = [room_key(model, tier), queue_name(model, tier)]
        self._drain_key, self._tier, self._clock = drain_key(model), tier, clock
        self._order_keys = [f"counters:{model}:{tier}", f"owners:{model}:{tier}"]
        self._release = redis.register_script(RELEASE)
        self._position = redis.register_script(POSITION)
        self._missing = redis.register_script(MISSING)
        self._remove = redis.register_script(REMOVE)

    def release(
        self,
        lookahead: int,
        newcomers: Iterable[Newcomer] = (),
        departed: int = 0,
        corrections: Iterable[Correction] = (),
    ) -> Release:
        """Let `newcomers` in, then take out the first runs until the queue holds `lookahead`. One round trip.

        `departed` is how many runs have left the queue for a worker and were not told of before; by these the drain is
        measured. Letting in a run that waits already changes nothing. Whoever is taken out must be sent: a caller that
        dies before it has sent them loses hints, not runs, since their rows still say that they are queued.
        """
        entries = [_entry(each) for each in sorted(newcomers, key=lambda newcomer: newcomer.run_id)]
        ended = [[str(each.user_id), each.cost, each.charge] for each in corrections]
        now_ms = self._clock() if self._clock else ""
        args: list[Any] = [now_ms, lookahead, departed, self._tier, len(entries), *chain(*entries), *chain(*ended)]
        taken, waiting = self._release(keys=[*self._keys, self._drain_key, *self._order_keys], args=args)
        departures = [
            Departure(UUID(run_id.decode()), cost) for run_id, cost in zip(taken[::2], taken[1::2], strict=True)
        ]
        counts = {tier.decode(): count for tier, count in zip(waiting[::2], waiting[1::2], strict=True)}
        return Release(departures, counts)

    def position(self, run_id: UUID) -> int | None:
        """How many runs the workers take up to this one, itself included; None when it does not wait here."""
        return cast(int | None, self._position(keys=self._keys, args=[str(run_id)]))

    def missing(self, run_ids: Sequence[UUID]) -> list[UUID]:
        """Those of the runs that wait neither here nor in the queue; a round trip for each `PAGE` of them."""
        found: list[bytes] = []
        for start in range(0, len(run_ids), PAGE):
            page = [str(run_id) for run_id in run_ids[start : start + PAGE]]
            found += cast(list[bytes], self._missing(keys=self._keys, args=page))
        return [UUID(run_id.decode()) for run_id in found]

    def remove(self, run: Newcomer) -> bool:
        """Take a run out, though it was let go to the queue already, and lower its user's counter by its cost.

        False when no worker would meet it anyway.
        """
        args: list[Any] = [str(run.run_id), str(run.user_id), run.cost]
        return bool(self._remove(keys=[*self._keys, *self._order_keys], args=args))


def _entry(newcomer: Newcomer) -> list[str | int]:
    return [str(newcomer.run_id), str(newcomer.user_id), newcomer.cost, int(newcomer.was_charged)]
