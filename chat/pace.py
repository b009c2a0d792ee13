"""How fast an attempt's tokens come, told to its worker's meter: a few additions a step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from chat.models import Claim, Run
from inference.engine import Step
from inference.means import Ratio
from inference.metering import Meter, Tally
from scheduler import prices

# With fewer an engine's step takes longer than they do: a saving would seem greater than it is.
TELLING_TOKENS = 256


@contextmanager
def in_hand(meter: Meter, run: Run, claim: Claim) -> Iterator[None]:
    """A claimed run is in the worker's hands meanwhile. How long it had waited counts once, at its first claim."""
    tally = meter.tallies[run.room_tier]
    tally.in_hand += 1
    tally.taken += 1
    if claim.attempt == 1:
        tally.queue_wait.observe(claim.age_s)
    try:
        yield
    finally:
        tally.in_hand -= 1


class Pace:
    """One attempt's tokens. The time to the first one is the run's, from its request on: only where nobody saw any.

    What the engine took to compute the prompt is told to `prefill`.
    """

    def __init__(self, tally: Tally, prefill: Ratio, run: Run, claim: Claim, *, is_first: bool) -> None:
        self._tally = tally
        self._prefill = prefill
        self._run = run
        self._claim = claim
        self._is_first = is_first
        self._prompt_tokens = 0
        self._entered_at = 0.0
        self._last_at: float | None = None

    def enter(self, prompt_tokens: int) -> None:
        """The engine is asked now, with a prompt of so many tokens."""
        self._prompt_tokens, self._entered_at = prompt_tokens, time.monotonic()

    def note(self, step: Step) -> None:
        """Take a step in."""
        if count := len(step.token_ids):
            now = time.monotonic()
            if self._last_at is None:
                self._begin(step, now)
            else:
                self._tally.inter_token.observe((now - self._last_at) / count, count)
            self._last_at = now
            self._tally.output_tokens += count
            self._tally.charged_tokens += count

    def _begin(self, step: Step, now: float) -> None:
        run, tally = self._run, self._tally
        if self._is_first:
            tally.ttft.observe(self._claim.age_s + now - self._claim.claimed_at)
        computed = self._prompt_tokens - step.cached_tokens
        if computed >= TELLING_TOKENS:
            self._prefill.add(now - self._entered_at, computed)
        cached = min(step.cached_tokens, run.input_tokens)
        tally.input_tokens += run.input_tokens
        tally.cached_tokens += cached
        tally.charged_tokens += prices.charge(run.input_tokens, cached, 0, run.model.cached_token_percent)
