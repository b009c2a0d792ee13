# /// script
# requires-python = ">=3.11"
# dependencies = ["httpx>=0.27,<1"]
# ///
"""Palaver's API as it should be used: questions that are asked once, answers that survive a cut connection.

One file, to be copied beside your own code; of what is not Python's own it needs httpx.

    with Palaver("https://palaver.example.org", key) as palaver:
        chat_id = palaver.open_chat()
        print(palaver.answer(chat_id, "What is the capital of France?"))
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self
from uuid import uuid4

import httpx


class PalaverError(Exception):
    """Root of what goes wrong: a stable `code`, and a `detail` for people.

    PalaverError
    ├── Refused           the server said no, as application/problem+json: `status` and `data` too
    │   ├── NotAllowed         401, 403  no key, a key that does not open, or one that lacks a scope
    │   ├── NotFound           404       unknown, or somebody else's
    │   ├── Conflict           409       the chat is busy or full
    │   ├── OverLimit          429       a limit of yours
    │   └── ServerTrouble      5xx       no capacity, or a bug
    ├── Unreachable       no answer, or a stream that broke
    ├── NotAnswered       the run came to an end that is not `done`
    └── TextMismatch      what was read is not what was written
    """

    may_pass = False  # whether the same request may fare better in a while
    retry_after_s = 0.0  # in how long, where the server knows

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{detail} ({code})")
        self.code, self.detail = code, detail


class Unreachable(PalaverError):
    """No answer, or a stream that broke."""

    may_pass = True


class TextMismatch(PalaverError):
    """What was read is not what was written."""


class NotAnswered(PalaverError):
    """The run came to an end that is not `done`: `ended` tells more, `text` is what there is of the answer."""

    def __init__(self, ended: Ended, text: str) -> None:
        super().__init__(ended.code or ended.status, ended.detail or f"The run was {ended.status}.")
        self.ended, self.text = ended, text


class Refused(PalaverError):
    """The server said no."""

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after: str) -> None:
        super().__init__(problem.get("code", f"http_{status}"), problem.get("detail", "The server gave no reason."))
        self.status, self.data = status, problem
        self.may_pass = status in PASSING or self.code == "idempotency_in_flight"
        self.retry_after_s = float(retry_after) if retry_after.isdecimal() else 0.0


class NotAllowed(Refused):
    """No key, a key that does not open, or one that lacks a scope."""


class NotFound(Refused):
    """Unknown, or somebody else's."""


class Conflict(Refused):
    """The chat is busy or full."""


class OverLimit(Refused):
    """A limit of yours."""


class ServerTrouble(Refused):
    """No capacity, or a bug."""


PASSING = {429, 502, 503, 504}
KINDS = {401: NotAllowed, 403: NotAllowed, 404: NotFound, 409: Conflict, 429: OverLimit}


@dataclass(frozen=True, slots=True)
class Run:
    """An answer that is being made: where it can be read, and the question that it is for."""

    id: str
    message_id: str
    stream: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """The run's place in its queue, and in how many seconds about it begins; None where that is not known."""

    position: int | None
    eta_s: float | None


@dataclass(frozen=True, slots=True)
class Text:
    """The next piece of the answer, and how many characters stand before it."""

    text: str
    offset: int


@dataclass(frozen=True, slots=True)
class Reset:
    """The answer from this character on is void, and is written anew: take back what you show of it."""

    offset: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The last event, and all of the text was read: `status` is `done`, `cancelled` or `failed`."""

    status: str
    message_id: str | None
    finish_reason: str | None
    usage: Mapping[str, int]
    code: str = ""  # why it failed
    detail: str = ""
    retryable: bool = False


Event = Waiting | Text | Reset | Ended


@dataclass
class Reading:
    """What was read of a run so far. Given to `Palaver.stream` once more, it is gone on with from there."""

    text: str = ""
    last_id: str | None = None
    ended: Ended | None = None

    def take(self, told: Told) -> Event | None:
        """Add one event; None for what is no news to a reader. Raises `TextMismatch`."""
        event = self._take(told.name, told.data)
        self.last_id = told.id or self.last_id
        return event

    def _take(self, name: str, data: Mapping[str, Any]) -> Event | None:
        match name:
            case "queued":
                return Waiting(data["position"], data["eta_s"])
            case "delta":
                return self._add(Text(data["text"], data["offset"]))
            case "reset":
                self.text = self.text[: data["offset"]]
                return Reset(data["offset"])
            case "done" | "cancelled" | "failed":
                return self._end(data)
        return None

    def _add(self, piece: Text) -> Text:
        if piece.offset != len(self.text):
            raise TextMismatch("text_missing", f"Character {piece.offset} came where {len(self.text)} is next.")
        self.text += piece.text
        return piece

    def _end(self, data: Mapping[str, Any]) -> Ended:
        read = (len(self.text), hashlib.sha256(self.text.encode()).hexdigest())
        if read != (data["chars"], data["sha256"]):
            raise TextMismatch("digest_mismatch", f"{read[0]} characters were read, and are not the {data['chars']}.")
        known = {name: data[name] for name in Ended.__slots__ if name in data}
        self.ended = Ended(**known)
        return self.ended


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to go on trying, and how often."""

    total_s: float = 60.0  # without an answer or a sign of life
    first_pause_s: float = 0.25  # doubled each time, until the longest
    longest_pause_s: float = 8.0
    silence_s: float = 45.0  # of a connection, before it is dead: a stream says something every 15


class Palaver:
    """One user's view of a server. What may pass is tried again, as often as the patience allows."""

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        patience: Patience = Patience(),
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._patience = patience
        self._http = httpx.Client(
            base_url=base_url,
            headers={"Authorization": f"Bearer {api_key}"},
            timeout=patience.silence_s,
            transport=transport,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Runs go on."""
        self._http.close()

    def open_chat(self) -> str:
        """Open a chat; returns its id. Raises `Refused`, `Unreachable`."""
        return str(self._post("/api/chats", {})["id"])

    def ask(self, chat_id: str, content: str, model: str | None = None, max_output_tokens: int | None = None) -> Run:
        """Ask once, however often it has to be sent. Raises `Refused`, `Unreachable`."""
        wishes = {"content": content, "model": model, "max_output_tokens": max_output_tokens}
        body = {name: wish for name, wish in wishes.items() if wish is not None}
        queued = self._post(f"/api/chats/{chat_id}/messages", body)
        return Run(queued["run_id"], queued["message_id"], queued["stream"])

    def stream(self, run: Run, reading: Reading | None = None) -> Iterator[Event]:
        """The run's events until its end, over as many connections as it takes; nothing is lost, nothing comes twice.

        Raises `Refused`, `Unreachable` and `TextMismatch`; behind the first two, go on with the same `reading`.
        """
        reading = Reading() if reading is None else reading
        tries = Tries(self._patience)
        while reading.ended is None:
            try:
                for told in self._told(run.stream, reading.last_id):
                    tries.heard(is_news=told.id is not None)
                    if event := reading.take(told):
                        yield event
            except (Refused, Unreachable) as error:
                if reading.ended is None:
                    tries.wait(error)
            else:
                return

    def answer(self, chat_id: str, content: str, model: str | None = None, max_output_tokens: int | None = None) -> str:
        """The whole answer, when it is there. Raises `NotAnswered`, and what `ask` and `stream` raise."""
        reading = Reading()
        for event in self.stream(self.ask(chat_id, content, model, max_output_tokens), reading):
            if isinstance(event, Ended) and event.status != "done":
                raise NotAnswered(event, reading.text)
        return reading.text

    def cancel(self, run: Run) -> None:
        """Stop it, if it is not over: its stream ends within moments. Raises `Refused`, `Unreachable`."""
        self._post(f"/api/runs/{run.id}/cancel", {})

    def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        # By the key the server knows a request that it has done, when it was the answer that was lost.
        headers = {"Idempotency-Key": str(uuid4())}
        tries = Tries(self._patience)
        while True:
            try:
                with reached():
                    return accepted(self._http.post(path, json=body, headers=headers)).json()
            except (Refused, Unreachable) as error:
                tries.wait(error)

    def _told(self, path: str, last_id: str | None) -> Iterator[Told]:
        """The events of one connection; none behind the last one. Raises `Refused`, `Unreachable`."""
        headers = {"Last-Event-ID": last_id} if last_id else {}
        with reached(), self._http.stream("GET", path, headers=headers) as response:
            if accepted(response).status_code == httpx.codes.NO_CONTENT:
                return
            yield from events(response.iter_bytes())
        raise Unreachable("stream_broken", "The stream ended before the answer did.")


class Tries:
    """Pauses between tries, until nothing was heard for the whole patience."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self.heard(is_news=True)

    def heard(self, *, is_news: bool) -> None:
        """The server lives; with news in what it says, the next pause is a short one."""
        self._until = time.monotonic() + self._patience.total_s
        if is_news:
            self._pause_s = self._patience.first_pause_s

    def wait(self, error: PalaverError) -> None:
        """Sleep until it is worth another try. Raises the error where it is not, or not within the patience."""
        pause_s = self._pause_s * random.uniform(0.5, 1)  # noqa: S311  (so that not all come back at once)
        wait_s = max(error.retry_after_s, pause_s)
        if not error.may_pass or time.monotonic() + wait_s > self._until:
            raise error
        self._pause_s = min(2 * self._pause_s, self._patience.longest_pause_s)
        time.sleep(wait_s)


class Told(NamedTuple):
    """One server-sent event; a heartbeat has neither name nor id."""

    name: str
    id: str | None
    data: Mapping[str, Any]


def events(pieces: Iterable[bytes]) -> Iterator[Told]:
    """The events that are whole: one that a cut left unfinished comes again."""
    fields: dict[str, str] = {}
    for line in lines(pieces):
        name, _, value = line.partition(":")
        if line:
            fields[name] = value.removeprefix(" ")
        elif fields:
            yield Told(fields.get("event", ""), fields.get("id"), json.loads(fields.get("data", "{}")))
            fields = {}


def lines(pieces: Iterable[bytes]) -> Iterator[str]:
    """Lines by their line feeds: httpx's own also end at U+2028 and its like, which an answer may have."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from (line.decode().removesuffix("\r") for line in whole)


@contextmanager
def reached() -> Iterator[None]:
    """Tell what goes wrong with a connection in words of ours. Raises `Unreachable`."""
    try:
        yield
    except httpx.UnsupportedProtocol:
        raise  # an address that is none gets no better
    except httpx.TransportError as error:
        raise Unreachable("unreachable", str(error) or type(error).__name__) from error


def accepted(response: httpx.Response) -> httpx.Response:
    """The response, when it is what was asked for. Raises `Refused`."""
    if response.is_success:
        return response
    status, kind = response.status_code, KINDS.get(response.status_code, Refused)
    told = response.read()
    is_problem = response.headers.get("Content-Type", "").startswith("application/problem+json")  # a proxy tells none
    kind = ServerTrouble if status >= httpx.codes.INTERNAL_SERVER_ERROR else kind
    raise kind(status, json.loads(told) if is_problem else {}, response.headers.get("Retry-After", ""))


INTERRUPTED = 130  # as shells have it


def show(palaver: Palaver, run: Run, reading: Reading) -> None:
    """Print the answer as it comes."""
    for event in palaver.stream(run, reading):
        match event:
            case Text(text):
                print(text, end="", flush=True)
            case Reset():
                print(f"\n[again from here]\n{reading.text}", end="", flush=True)
            case Ended(status) if status != "done":
                raise NotAnswered(event, reading.text)


def converse(palaver: Palaver, question: str) -> int:
    """Ask in a new chat and print the answer; Ctrl-C cancels it. Returns the command's exit status."""
    run, reading = palaver.ask(palaver.open_chat(), question), Reading()
    try:
        show(palaver, run, reading)
    except KeyboardInterrupt:
        palaver.cancel(run)
        show(palaver, run, reading)  # what it had written by then
    finally:
        print()
    return 0


def main() -> int:
    """`palaver_client.py QUESTION`, with PALAVER_KEY and, for a server that is not local, PALAVER_URL."""
    question, key = " ".join(sys.argv[1:]), os.environ.get("PALAVER_KEY")
    if not question or not key:
        print(main.__doc__, file=sys.stderr)
        return 2
    try:
        with Palaver(os.environ.get("PALAVER_URL", "http://127.0.0.1:8000"), key) as palaver:
            return converse(palaver, question)
    except PalaverError as error:
        print(f"palaver: {error}", file=sys.stderr)
        return INTERRUPTED if error.code == "cancelled" else 1
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
