"""Events as bytes of `text/event-stream`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from chat.streaming.place import Place
from inference.streams import Delta, Ended, Event, Reset, Started

if TYPE_CHECKING:
    from chat.streaming.hub import Wait

# Not escaped to ASCII: that triples Persian. A lone surrogate cannot come: Postgres and Redis hold UTF-8.
JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
HEARTBEAT = b": hb\n\n"


def described(event: Event) -> tuple[str, Mapping[str, Any]]:
    """An event's name and JSON object, as clients see them."""
    match event:
        case Started(attempt, model):
            return "started", {"attempt": attempt, "model": model}
        case Delta(text, offset):
            return "delta", {"text": text, "offset": offset}
        case Reset(offset):
            return "reset", {"offset": offset}
        case Ended(status, data):
            return status, data


def frame(place: Place, event: Event) -> bytes:
    """One event with its id: where a reader is once it has it."""
    name, data = described(event)
    return f"event: {name}\nid: {place}\ndata: {JSON.encode(data)}\n\n".encode()


@dataclass(frozen=True, slots=True)
class Told:
    """A frame, read back. A comment has no name, and what has no id is at no place."""

    name: str
    place: Place | None
    data: Mapping[str, Any]


def read(told: bytes) -> Iterator[Told]:
    """The reverse of what makes frames here, for answers that say the same in other words."""
    for block in told.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        place = Place.parse(fields["id"]) if "id" in fields else None
        yield Told(fields.get("event", ""), place, json.loads(fields.get("data", "{}")))


def of_run(run_id: UUID, told: bytes) -> bytes:
    """The same events, and each says of which run it is: beside those of others its id would not."""
    # JSON escapes line breaks: no text can hold this.
    return told.replace(b'\ndata: {"', b'\ndata: {"run_id":"%b","' % str(run_id).encode())


def queued(wait: Wait, tier: str) -> bytes:
    """Where a run stands and for about how long; without an id, since it is no place in the answer."""
    return unnumbered("queued", {**asdict(wait), "tier": tier})


def comment(text: str) -> bytes:
    """What keeps a connection, and is no event."""
    return f": {text}\n\n".encode()


def unnumbered(name: str, data: Mapping[str, Any]) -> bytes:
    """An event without an id: a browser that comes back does not name it."""
    return f"event: {name}\ndata: {JSON.encode(data)}\n\n".encode()
