"""Where admitted runs wait for release to their Celery queue: first come first served, one room a model and tier."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import cast
from uuid import UUID

from redis import Redis

LUA = Path(__file__).parent / "lua"
# One script: a worker that has taken a run says so by the call by which it wants the next.
RELEASE = (LUA / "drain.lua").read_text() + (LUA / "release.lua").read_text()
POSITION = (LUA / "position.lua").read_text()
MISSING = (LUA / "missing.lua").read_text()
REMOVE = (LUA / "remove.lua").read_text()

# A script holds up everybody else while it runs.
PAGE = 1000


def queue_name(model: str, tier: str) -> str:
    """The Celery queue behind a room; with the Redis transport also the key of its list."""
    return f"gen.{model}.{tier}"


def room_key(model: str, tier: str) -> str:
    """The key of a room's sorted set."""
    return f"room:{model}:{tier}"


def drain_key(model: str) -> str:
    """The key of the hash that says how fast runs leave for the model's workers; see `lua/drain.lua`."""
    return f"drain:{model}"


class Room:
    """One model's and tier's waiting runs, in the broker's Redis. Lost with it, and made anew from the rows."""

    def __init__(self, redis: Redis, model: str, tier: str) -> None:
        self._redis = redis
        self._keys = [room_key(model, tier), queue_name(model, tier)]
        self._drain_key, self._tier = drain_key(model), tier
        self._release = redis.register_script(RELEASE)
        self._position = redis.register_script(POSITION)
        self._missing = redis.register_script(MISSING)
        self._remove = redis.register_script(REMOVE)

    def release(self, lookahead: int, newcomers: Iterable[UUID] = (), departed: int = 0) -> list[UUID]:
        """Let `newcomers` in, then take out the first runs until the queue holds `lookahead`. One round trip.

        `departed` is how many runs have left the queue for a worker and were not told of before; by these the drain is
        measured. Letting in a run that waits already changes nothing. Whoever is taken out must be sent: a caller that
        dies before it has sent them loses hints, not runs, since their rows still say that they are queued.
        """
        places = [part for run_id in newcomers for part in (place(run_id), str(run_id))]
        keys = [*self._keys, self._drain_key]
        taken = cast(list[bytes], self._release(keys=keys, args=[lookahead, departed, self._tier, *places]))
        return [UUID(run_id.decode()) for run_id in taken]

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

    def remove(self, run_id: UUID) -> bool:
        """Take a run out, though it was let go to the queue already; False when no worker would meet it anyway."""
        return bool(self._remove(keys=self._keys, args=[str(run_id)]))


def place(run_id: UUID) -> int:
    """What the room sorts by: the run's birth, in milliseconds, out of its UUIDv7.

    Not the time of entry: a run that is let in again, after Redis lost it, gets its old place back. Runs of one
    millisecond stand in the order of their ids.
    """
    return run_id.int >> 80
