"""A response as numbered events.

The numbers come from the stream: behind the opening ones, a delta's is that of the last code point it brings, so that
a client who names the last number it had is placed exactly, whether or not the stream is still there. Each attempt of
the run counts from a base of its own, as what one had told the next may void.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from chat.models import Run, Status
from chat.openai import errors
from chat.openai.connection import Events
from chat.openai.ends import TextVoided
from chat.openai.response_object import described, item, part, read, status_of
from chat.openai.wire import framed, waiting
from chat.problems import Problem
from chat.streaming import frames
from chat.streaming.frames import Told
from chat.streaming.place import RESET_SEQ, Place
from inference.streams import EntryId

BEFORE = -1
CREATED, QUEUED, IN_PROGRESS, ITEM_ADDED, PART_ADDED = range(5)
TEXT_DONE, PART_DONE, ITEM_DONE, OVER = range(1, 5)  # behind the last delta
ATTEMPT_BITS = 32
# Names of the last event, by the response's status. Of one that was cancelled OpenAI has none of its own.
LAST: Mapping[str, str] = {"completed": "completed", "failed": "failed"}
INCOMPLETE = "incomplete"


def number(place: Place) -> int:
    """Of the delta that leads there."""
    return ((max(1, place.heard) - 1) << ATTEMPT_BITS) + PART_ADDED + place.offset


def place_behind(sequence_number: int) -> Place:
    """Where a client is who had the event of that number."""
    if sequence_number <= PART_ADDED:
        return Place()
    attempt, rest = 1 + (sequence_number >> ATTEMPT_BITS), sequence_number & ((1 << ATTEMPT_BITS) - 1)
    return Place(EntryId(attempt, RESET_SEQ if attempt > 1 else 0), max(0, rest - PART_ADDED))


@dataclass(frozen=True, slots=True)
class Numbered:
    """The events of a run behind a number."""

    run: Run
    after: int = BEFORE

    @property
    def place(self) -> Place:
        """Where it begins. Behind the text are only the last events, which have no place of their own."""
        place = place_behind(self.after)
        is_over = Status(self.run.status).is_terminal
        length = len(self.run.answer.content) if self.run.answer else 0
        return replace(place, offset=min(place.offset, length)) if is_over else place

    async def told(self, events: Events) -> AsyncGenerator[bytes, None]:
        """As server-sent events. What goes wrong is told as one."""
        place, has_begun = self.place, False
        try:
            yield self._opening()
            async with aclosing(events):
                async for told in events:
                    place = told.place or place
                    if told.name != "started":
                        yield await self._told(told, place)
                    elif not has_begun:  # another attempt goes on with the same
                        yield self._started()
                        has_begun = True
        except Problem as problem:
            error = errors.described(problem)["error"]
            yield self._framed(
                max(number(place), self.after), "error", {name: error[name] for name in ("code", "message", "param")}
            )

    def _opening(self) -> bytes:
        waiting = {"response": {**described(self.run), "status": "queued", "output": [], "usage": None}}
        return self._joined((CREATED, "response.created", waiting), (QUEUED, "response.queued", waiting))

    async def _told(self, told: Told, place: Place) -> bytes:
        match told.name:
            case "delta":
                at = {**self._where(), "delta": told.data["text"], "logprobs": []}
                return self._framed(number(place), "response.output_text.delta", at)
            case "queued":
                return waiting(told)
            case "reset":
                raise TextVoided
            case "done" | "cancelled" | "failed":
                return await self._ended(place)
            case _:
                return frames.HEARTBEAT

    def _started(self) -> bytes:
        going_on = {**described(self.run), "status": "in_progress", "output": [], "usage": None}
        new_item = {**item(self.run), "status": "in_progress", "content": []}
        return self._joined(
            (IN_PROGRESS, "response.in_progress", {"response": going_on}),
            (ITEM_ADDED, "response.output_item.added", {"output_index": 0, "item": new_item}),
            (PART_ADDED, "response.content_part.added", {**self._where(), "part": part("")}),
        )

    async def _ended(self, place: Place) -> bytes:
        """From the row, which has the whole text: a client that came back has it in pieces of two connections."""
        run = await read(self.run.pk)
        base, events = number(place), list[tuple[int, str, Mapping[str, Any]]]()
        if run.answer:
            whole = part(run.answer.content)
            done = {**self._where(), "text": run.answer.content, "logprobs": []}
            events = [
                (base + TEXT_DONE, "response.output_text.done", done),
                (base + PART_DONE, "response.content_part.done", {**self._where(), "part": whole}),
                (base + ITEM_DONE, "response.output_item.done", {"output_index": 0, "item": item(run, whole)}),
            ]
        last = LAST.get(status_of(run), INCOMPLETE)
        events.append((base + OVER, f"response.{last}", {"response": described(run)}))
        return self._joined(*events)

    def _joined(self, *events: tuple[int, str, Mapping[str, Any]]) -> bytes:
        """Those that the client has not had; a sign of life where it has had all."""
        return b"".join(self._framed(*event) for event in events if event[0] > self.after) or frames.HEARTBEAT

    def _where(self) -> Mapping[str, Any]:
        return {"item_id": item(self.run)["id"], "output_index": 0, "content_index": 0}

    def _framed(self, sequence_number: int, name: str, data: Mapping[str, Any]) -> bytes:
        return framed({"type": name, "sequence_number": sequence_number, **data}, name)
