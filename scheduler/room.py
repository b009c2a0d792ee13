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

from scheduler.routing import Decision, Report, Route, Warm

LUA = Path(__file__).parent / "lua"
# One script: a worker that has taken a run says so by the call by which it wants the next.
DRAIN, ORDER, ROUTE = ((LUA / f"{name}.lua").read_text() for name in ("drain", "order", "route"))
RELEASE = DRAIN + ORDER + ROUTE + (LUA / "release.lua").read_text()
POSITION = (LUA / "position.lua").read_text()
MISSING = (LUA / "missing.lua").read_text()
REMOVE = ORDER + ROUTE + (LUA / "remove.lua").read_text()

# In place of a tier's slug, which cannot begin so: runs that nobody waits for, titles and summaries, of all tiers.
BACKGROUND = "_background"

# In place of what a worker tells, and how many values the script tells of a departure.
NOBODY_CALLS = ["", 0, 0, 0]
COLUMNS = 6
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


def sticky_key(model: str, tier: str) -> str:
    """The key of the sorted set of runs that were sent to one worker alone; see `lua/route.lua`."""
    return f"sticky:{model}:{tier}"


def holders_key(model: str, tier: str) -> str:
    """The key of the hash that says which worker that is."""
    return f"holders:{model}:{tier}"


def workers_key(model: str) -> str:
    """The key of the hash of what the model's workers told of themselves."""
    return f"workers:{model}"


def position_keys(model: str, tier: str) -> list[str]:
    """The keys that `POSITION` is to be given."""
    return [room_key(model, tier), queue_name(model, tier), holders_key(model, tier)]


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A run that is to wait, whose it is, and the most tokens that it may come to; and who is warm for it.

    It `was_charged` when its user's counter has gone up by its cost, before its message was lost: it goes to the front.
    """

    run_id: UUID
    user_id: UUID
    cost: int
    was_charged: bool = False
    warm: Warm | None = None


@dataclass(frozen=True, slots=True)
class Departure:
    """A run on its way to a worker; its cost is 0 when the release before this one let it in.

    Its route is None where no worker is warm for it, and all may take it.
    """

    run_id: UUID
    cost: int
    route: Route | None = None


@dataclass(frozen=True, slots=True)
class Correction:
    """What a user's run that has ended was charged, in place of its cost."""

    user_id: UUID
    cost: int
    charge: int


@dataclass(frozen=True, slots=True)
class Release:
    """Who was taken out, first come first, and how many wait in each tier of the model: those just taken included.

    Of those that are kept for a worker only the caller's own count as waiting, where a worker calls. The `late` ones
    were kept for a worker until now, and are for all.
    """

    taken: list[Departure]
    waiting: Mapping[str, int] = field(default_factory=dict)
    late: Sequence[UUID] = ()


class Room:
    """One model's and tier's waiting runs, in the broker's Redis. Lost with it, and made anew from the rows.

    `clock` tells milliseconds since the epoch; without one it is Redis's own time.
    """

    def __init__(self, redis: Redis, model: str, tier: str, clock: Callable[[], int] | None = None) -> None:
        self._redis = redis
        self._keys = [room_key(model, tier), queue_name(model, tier)]
        self._tier, self._clock = tier, clock
        self._drain_key, self._workers_key = drain_key(model), workers_key(model)
        self._order_keys = [f"counters:{model}:{tier}", f"owners:{model}:{tier}"]
        self._sticky_keys = [sticky_key(model, tier), holders_key(model, tier)]
        self._position_keys = position_keys(model, tier)
        self._release = redis.register_script(RELEASE)
        self._position = redis.register_script(POSITION)
        self._missing = redis.register_script(MISSING)
        self._remove = redis.register_script(REMOVE)

    def release(
        self,
        lookahead: int,
        newcomers: Iterable[Newcomer] = (),
        departed: Sequence[UUID] = (),
        corrections: Iterable[Correction] = (),
        report: Report | None = None,
    ) -> Release:
        """Let `newcomers` in, then take out the first runs until the queue holds `lookahead`. One round trip.

        `departed` have left a queue for a worker and were not told of before; by these the drain is measured. A worker
        that calls reports of itself. Letting in a run that waits already changes nothing. Whoever is taken out must be
        sent: a caller that dies before it has sent them loses hints, not runs, since their rows still say that they are
        queued.
        """
        entries = [_entry(each) for each in sorted(newcomers, key=lambda newcomer: newcomer.run_id)]
        ended = [[str(each.user_id), each.cost, each.charge] for each in corrections]
        told = report.told if report else NOBODY_CALLS
        args: list[Any] = [self._clock() if self._clock else "", lookahead, self._tier, *told]
        args += [len(entries), len(departed), *chain(*entries), *map(str, departed), *chain(*ended)]
        keys = [*self._keys, self._drain_key, *self._order_keys, *self._sticky_keys, self._workers_key]
        taken, waiting, late = self._release(keys=keys, args=args)
        counts = {tier.decode(): count for tier, count in zip(waiting[::2], waiting[1::2], strict=True)}
        return Release(_departures(taken), counts, [UUID(run_id.decode()) for run_id in late])

    def position(self, run_id: UUID) -> int | None:
        """How many runs the workers take up to this one, itself included; None when it does not wait here.

        Of one that is kept for a worker, how many that worker takes.
        """
        return cast(int | None, self._position(keys=self._position_keys, args=[str(run_id)]))

    def missing(self, run_ids: Sequence[UUID]) -> list[UUID]:
        """Those of the runs that wait neither here nor in a queue behind; a round trip for each `PAGE` of them."""
        found: list[bytes] = []
        for start in range(0, len(run_ids), PAGE):
            page = [str(run_id) for run_id in run_ids[start : start + PAGE]]
            found += cast(list[bytes], self._missing(keys=[*self._keys, self._workers_key], args=page))
        return [UUID(run_id.decode()) for run_id in found]

    def remove(self, run: Newcomer) -> bool:
        """Take a run out, though it was let go to the queue already, and lower its user's counter by its cost.

        False when no worker would meet it anyway.
        """
        args: list[Any] = [str(run.run_id), str(run.user_id), run.cost]
        return bool(self._remove(keys=[*self._keys, *self._order_keys, *self._sticky_keys], args=args))


def _entry(newcomer: Newcomer) -> list[str | int]:
    warm = newcomer.warm or Warm("", 0)
    run: list[str | int] = [str(newcomer.run_id), str(newcomer.user_id), newcomer.cost, int(newcomer.was_charged)]
    return [*run, warm.worker, warm.tokens]


def _departures(taken: Sequence[Any]) -> list[Departure]:
    rows = zip(*(taken[column::COLUMNS] for column in range(COLUMNS)), strict=True)
    return [
        Departure(
            UUID(run_id.decode()),
            cost,
            Route(Decision(decision.decode()), worker.decode(), wait_ms, saving_ms) if decision else None,
        )
        for run_id, cost, decision, worker, wait_ms, saving_ms in rows
    ]
