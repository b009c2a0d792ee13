"""Where admitted runs wait for release to their Celery queue: first come first served, one room a model and tier."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import cast
from uuid import UUID

from redis import Redis

LUA = Path(__file__).parent / "lua"
RELEASE = (LUA / "release.lua").read_text()
POSITION = (LUA / "position.lua").read_text()


def queue_name(model: str, tier: str) -> str:
    """The Celery queue behind a room; with the Redis transport also the key of its list."""
    return f"gen.{model}.{tier}"


def room_key(model: str, tier: str) -> str:
    """The key of a room's sorted set."""
    return f"room:{model}:{tier}"


class Room:
    """One model's and tier's waiting runs, in the broker's Redis. Lost with it, and made anew from the rows."""

    def __init__(self, redis: Redis, model: str, tier: str) -> None:
        self._redis = redis
        self._keys = [room_key(model, tier), queue_name(model, tier)]
        self._release = redis.register_script(RELEASE)
        self._position = redis.register_script(POSITION)

    def release(self, lookahead: int, newcomers: Iterable[UUID] = ()) -> list[UUID]:
        """Let `newcomers` in, then take out the first runs until the queue holds `lookahead`. One round trip.

        Letting in a run that waits already changes nothing. Whoever is taken out must be sent: a caller that dies
        before it has sent them loses hints, not runs, since their rows still say that they are queued.
        """
        places = [part for run_id in newcomers for part in (place(run_id), str(run_id))]
        taken = cast(list[bytes], self._release(keys=self._keys, args=[lookahead, *places]))
        return [UUID(run_id.decode()) for run_id in taken]

    def position(self, run_id: UUID) -> int | None:
        """How many runs the workers take up to this one, itself included; None when it does not wait here."""
        return cast(int | None, self._position(keys=self._keys, args=[str(run_id)]))

    def remove(self, run_id: UUID) -> bool:
        """Take a run out; False when it was not waiting in the room."""
        return bool(self._redis.zrem(self._keys[0], str(run_id)))


def place(run_id: UUID) -> int:
    """What the room sorts by: the run's birth, in milliseconds, out of its UUIDv7.

    Not the time of entry: a run that is let in again, after Redis lost it, gets its old place back. Runs of one
    millisecond stand in the order of their ids.
    """
    return run_id.int >> 80
