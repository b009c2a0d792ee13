"""How one question is asked of a server, and which of its bytes are words: one class a kind of API."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from bench.serving.job import Job, Lane, Sample, Surface
from bench.serving.script import TOKEN
from bench.serving.wire import Wire, request

# The wall clock, as no adjustment can move it: rows bear the same one.
_OFFSET_S = time.time() - time.perf_counter()
Posted = Callable[[Sample], None]


class Refused(Exception):
    """The server has answered, but not with what was asked for."""


def now() -> float:
    """Seconds of the wall clock."""
    return _OFFSET_S + time.perf_counter()


class Asking(Protocol):
    """One kind of API."""

    async def ask(self, sample: Sample, lane: Lane, max_tokens: int) -> None:
        """Ask, read to the end, and note when what came. Raises `Refused`, `OSError`."""


class Palaver:
    """A message into a chat, then the run's event stream."""

    def __init__(self, wire: Wire, job: Job, posted: Posted) -> None:
        self._wire = wire
        self._job = job
        self._posted = posted

    async def ask(self, sample: Sample, lane: Lane, max_tokens: int) -> None:
        """See `Asking`."""
        wish = {"max_output_tokens": max_tokens} if max_tokens else {}
        body = {"content": self._job.content, **wish}
        status, answer = await self._wire.whole(request("POST", f"/api/chats/{lane.chat_id}/messages", lane.key, body))
        sample.posted_at, sample.status = now(), status
        if status != 202:
            raise Refused(f"{status} {answer[:200].decode(errors='replace')}")
        run = json.loads(answer)
        sample.run_id = run["run_id"]
        self._posted(sample)
        if not self._job.is_post_only:
            await self._read(sample, run["stream"], lane)

    async def _read(self, sample: Sample, path: str, lane: Lane) -> None:
        events = Events(_palavers_words, sample, keeps=self._job.keeps_deltas)
        sample.status = await self._wire.exchange(request("GET", path, lane.key), events.take)
        if sample.status != 200 or events.last != b"done":
            raise Refused(f"the stream ended {sample.status} with {events.last.decode(errors='replace')}")


class OpenAi:
    """One chat completion that streams."""

    def __init__(self, wire: Wire, job: Job, posted: Posted) -> None:
        self._wire = wire
        self._job = job
        self._posted = posted

    async def ask(self, sample: Sample, lane: Lane, max_tokens: int) -> None:
        """See `Asking`."""
        body: dict[str, Any] = {
            "model": self._job.model,
            "messages": [{"role": "user", "content": self._job.content}],
            "stream": True,
            **({"max_tokens": max_tokens} if max_tokens else {}),
        }
        events = Events(_openais_words, sample, keeps=self._job.keeps_deltas)
        sample.status = await self._wire.exchange(request("POST", "/v1/chat/completions", lane.key, body), events.take)
        if sample.status != 200 or events.last != b"done":
            raise Refused(f"{sample.status}, and the last event is {events.last.decode(errors='replace')}")


class Page:
    """One GET, whole."""

    def __init__(self, wire: Wire, job: Job, posted: Posted) -> None:
        self._wire = wire
        self._job = job
        self._posted = posted

    async def ask(self, sample: Sample, lane: Lane, max_tokens: int) -> None:  # noqa: ARG002
        """See `Asking`."""
        path = self._job.content.format(chat=lane.chat_id)
        sample.status, _ = await self._wire.whole(request("GET", path, lane.key))
        sample.ended_at = now()
        if sample.status != 200:
            raise Refused(str(sample.status))


SURFACES: Mapping[Surface, Callable[[Wire, Job, Posted], Asking]] = {
    Surface.PALAVER: Palaver,
    Surface.OPENAI: OpenAi,
    Surface.PAGE: Page,
}


class Events:
    """Takes an event stream's bytes, in whatever pieces, and notes in a sample what they bring."""

    def __init__(self, words_of: Callable[[bytes], tuple[bytes, str]], sample: Sample, *, keeps: bool) -> None:
        self.last = b""  # the last event's kind
        self._words_of = words_of
        self._sample = sample
        self._keeps = keeps
        self._rest = b""

    def take(self, piece: bytes) -> None:
        """All that `piece` completes came now."""
        at = now()
        *blocks, self._rest = (self._rest + piece.replace(b"\r\n", b"\n")).split(b"\n\n")
        for block in blocks:
            kind, words = self._words_of(block)
            self.last = kind or self.last
            if words:
                self._note(at, -(-len(words) // len(TOKEN)))
            if kind == b"done":
                self._sample.ended_at = at

    def _note(self, at: float, tokens: int) -> None:
        sample = self._sample
        sample.first_at = sample.first_at or at
        if self._keeps:
            sample.deltas.append((at, sample.tokens, sample.tokens + tokens))
        sample.tokens += tokens


def _palavers_words(block: bytes) -> tuple[bytes, str]:
    kind = data = b""
    for line in block.split(b"\n"):
        if line.startswith(b"event: "):
            kind = line[7:]
        elif line.startswith(b"data: "):
            data = line[6:]
    return kind, json.loads(data)["text"] if kind == b"delta" else ""


def _openais_words(block: bytes) -> tuple[bytes, str]:
    data = block.removeprefix(b"data: ")
    if data == block:
        return b"", ""
    if data == b"[DONE]":
        return b"done", ""
    choices = json.loads(data).get("choices") or [{}]
    return b"delta", choices[0].get("delta", {}).get("content") or ""
