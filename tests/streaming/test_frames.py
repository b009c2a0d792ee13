"""Events as bytes: the same that django-eventstream would send, for any text."""

from __future__ import annotations

import json

import pytest
from django_eventstream.utils import sse_encode_event

from chat.streaming import frames
from chat.streaming.place import Place
from inference.streams import Delta, Ended, EntryId, Event, Reset, Started

TEXTS = (
    "plain",
    "two\nlines\r\nand\rmore",
    "\x00\x0b\x0c\x1c\x85\u2028\u2029",
    'a "quoted" \\ word',
    "سلام 世界 👩‍👩‍👧‍👦",
    "",
)


@pytest.mark.parametrize(
    "event",
    [*(Delta(text, 7) for text in TEXTS), Started(2, "m"), Reset(3), Ended("failed", {"message_id": None, "x": TEXTS})],
)
def test_a_frame_is_what_django_eventstream_makes_of_it(event: Event) -> None:
    place = Place(EntryId(2, 9), 14)
    name, data = frames.described(event)
    line = json.dumps(data, ensure_ascii=False, separators=(",", ":"))

    assert frames.frame(place, event) == sse_encode_event(name, line, str(place)).encode()
    assert frames.unnumbered(name, data) == sse_encode_event(name, line).encode()
