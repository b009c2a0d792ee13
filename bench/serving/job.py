"""What the load generator is told to do, and what it tells of each request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self

REASON_CHARS = 80


class Surface(StrEnum):
    """How a server is asked."""

    PALAVER = "palaver"  # a message into a chat of its own, then the run's event stream
    OPENAI = "openai"  # one chat completion that streams
    PAGE = "page"  # a GET of what the job's content names


@dataclass(frozen=True, slots=True)
class Lane:
    """Where one question goes, and by whose key."""

    key: str
    chat_id: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """`count` requests, `per_s` in every second whatever becomes of them; or as fast as `at_once` lanes are answered.

    With `per_s` a latency counts from when its request was due: a server that stalls delays nobody's clock. `seconds`
    ends the sending of lanes; a request that takes longer than `patience_s` has failed.
    """

    surface: Surface
    port: int
    lanes: Sequence[Lane]  # one a request, used in turn
    count: int
    per_s: float = 0.0
    at_once: int = 1
    seconds: float = 0.0
    pause_s: float = 0.0  # of a lane, between an answer and the next question
    content: str = "Hello"
    model: str = "default"
    # Of the first request; each later one may have less, so that all end together.
    max_output_tokens: int = 0
    fewer_tokens_each: float = 0.0
    is_post_only: bool = False
    keeps_deltas: bool = False
    streams_url: str = ""  # to see for ourselves when a run's first delta is in its stream
    patience_s: float = 15.0

    def as_json(self) -> dict[str, Any]:
        """For the way between processes."""
        return asdict(self)

    @classmethod
    def of(cls, told: dict[str, Any]) -> Self:
        """The reverse."""
        lanes = [Lane(**lane) for lane in told["lanes"]]
        return cls(**{**told, "surface": Surface(told["surface"]), "lanes": lanes})

    def tokens_of(self, number: int) -> int:
        """The most that the answer to request `number` may have; 0: as it likes."""
        return max(1, round(self.max_output_tokens - number * self.fewer_tokens_each)) if self.max_output_tokens else 0


@dataclass(slots=True)
class Sample:
    """One request: seconds of the wall clock, 0 for what never came."""

    due_at: float
    sent_at: float = 0.0
    posted_at: float = 0.0  # the POST was answered
    stored_at: float = 0.0  # its first delta was in the stream, as another reader saw
    first_at: float = 0.0
    ended_at: float = 0.0
    status: int = 0
    tokens: int = 0
    run_id: str = ""
    failure: str = ""
    deltas: list[tuple[float, int, int]] = field(default_factory=list)  # when, and the tokens before and behind it

    @property
    def is_served(self) -> bool:
        """Whether all of it came."""
        return not self.failure

    @property
    def ttft_ms(self) -> float:
        """From when it was due."""
        return 1000 * (self.first_at - self.due_at)

    @property
    def post_ms(self) -> float:
        """From when it was due until its POST was answered."""
        return 1000 * (self.posted_at - self.due_at)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a job came to, and which share of a core it took to make."""

    samples: Sequence[Sample]
    cpu_share: float
    seconds: float

    @property
    def served(self) -> Sequence[Sample]:
        """Those that failed left out."""
        return [sample for sample in self.samples if sample.is_served]

    @property
    def failures(self) -> int:
        """How many were refused, cut off, or too late."""
        return sum(not sample.is_served for sample in self.samples)

    @property
    def reasons(self) -> Mapping[str, int]:
        """How often each kind of failure came."""
        return Counter(sample.failure[:REASON_CHARS] for sample in self.samples if sample.failure)

    @property
    def served_per_s(self) -> float:
        """Between the first that was sent and the last that ended."""
        served = self.served
        if not served:
            return 0.0
        last = max(sample.ended_at or sample.posted_at for sample in served)
        return len(served) / max(1e-9, last - min(sample.sent_at for sample in served))

    def as_json(self) -> dict[str, Any]:
        """For the way between processes."""
        return asdict(self)

    @classmethod
    def of(cls, told: dict[str, Any]) -> Self:
        """The reverse."""
        samples = [Sample(**sample) for sample in told["samples"]]
        return cls(samples, told["cpu_share"], told["seconds"])
