"""The log that the streams' Redis keeps for itself, its append-only files: whatever a script did to a bucket is there.

It outlives kills and FLUSHALL. What a fault takes away with the data it leaves in a folder beside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

from tests.faults.accounts import Emptied, GivenBack, Held, Operation
from tests.faults.parts import Server

LIVE, LOST = "appendonlydir", "lost-"
FIRST_BASE = b"appendonly.aof.1.base.rdb"  # an empty one: a later one stands for commands that are not there any more
BUCKET = b"budget:"

Command = Sequence[bytes]


def put_away(server: Server) -> None:
    """Let a Redis that is down have lost its data."""
    live = server.place / "valkey" / LIVE
    if live.exists():
        live.rename(live.with_name(f"{LOST}{len(_logs(server)):03}"))


def is_whole(server: Server) -> bool:
    """Whether the server has never made its log shorter."""
    return all(FIRST_BASE in (log / "appendonly.aof.manifest").read_bytes() for log in _logs(server))


def operations(server: Server) -> Iterator[Operation]:
    """What was done to buckets, in order."""
    for number, log in enumerate(_logs(server)):
        if number:
            yield Emptied()
        files = sorted(log.glob("*.incr.aof"), key=lambda file: int(file.name.split(".")[2]))
        yield from _told(chain.from_iterable(map(_executed, files)))


def _logs(server: Server) -> Sequence[Path]:
    folder = server.place / "valkey"
    return [*sorted(folder.glob(f"{LOST}*")), *folder.glob(LIVE)]


def _executed(file: Path) -> Iterator[Command]:
    """A file's commands, without a transaction that was cut off: the server itself does not count it."""
    transaction: list[Command] | None = None
    with file.open("rb") as log:
        while command := _next(log):
            match command[0].upper():
                case b"MULTI":
                    transaction = []
                case b"EXEC":
                    yield from transaction or ()
                    transaction = None
                case _ if transaction is not None:
                    transaction.append(command)
                case _:
                    yield command


def _next(log: BinaryIO) -> Command:
    """One command; an empty one at the end, or where a kill cut it off."""
    head = log.readline()
    if not head.startswith(b"*") or not head.endswith(b"\r\n"):
        return ()
    words = []
    for _ in range(int(head[1:])):
        size = log.readline()
        if not size.endswith(b"\r\n"):
            return ()
        word = log.read(int(size[1:]) + 2)
        words.append(word[:-2])
        if not word.endswith(b"\r\n"):
            return ()
    return words


def _told(commands: Iterator[Command]) -> Iterator[Operation]:
    written: Command = ()
    for command in commands:
        match command:
            case [b"FLUSHALL" | b"FLUSHDB", *_]:
                yield Emptied()
            case [b"HSET", key, b"missing", *_] if key.startswith(BUCKET):
                written = command
            case [b"HSET", key, run_id, tokens] if key.startswith(BUCKET):
                # One script does both, in one transaction.
                _, same, _, missing, _, at, *_ = written
                assert same == key, f"tokens are held of {key!r}, and none was taken from it"
                yield Held(_user(key), _id(run_id), int(tokens), int(missing), int(at))
            case [b"HDEL", key, run_id] if key.startswith(BUCKET):
                match next(commands):
                    case [b"HINCRBY", same, b"missing", units] if same == key:
                        yield GivenBack(_user(key), _id(run_id), -int(units))
                    case other:
                        raise AssertionError(f"a reservation ends, and then {other!r}")


def _user(key: bytes) -> UUID:
    return _id(key.rpartition(b":")[2])


def _id(text: bytes) -> UUID:
    return UUID(text.decode())
