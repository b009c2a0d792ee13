"""What becomes of one prompt."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from bench.simulation.demand import Prompt
from scheduler.routing import Warm


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast an engine serves each of its sequences: the prompt's tokens, then the answer's."""

    input_tokens_per_s: float = 8000.0
    tokens_per_s: float = 40.0

    def first_token_s(self, prompt: Prompt) -> float:
        """From the start to the first token."""
        return prompt.input_tokens / self.input_tokens_per_s

    def history_s(self, run: Run) -> float:
        """For what was said before, where its worker is not the one that has it."""
        return 0.0 if run.warm is None or run.is_hit else run.warm.tokens / self.input_tokens_per_s

    def service_s(self, prompt: Prompt) -> float:
        """From the start to the last token."""
        return self.first_token_s(prompt) + prompt.output_tokens / self.tokens_per_s


@dataclass(eq=False, slots=True)
class Run:
    """A run that was admitted; not all of its times are known from the first."""

    id: UUID
    prompt: Prompt
    cost: int
    started_at_s: float | None = None
    ended_at_s: float | None = None
    # Whose cache has what was said before, which another computes anew; and who took it.
    warm: Warm | None = None
    worker: str = ""

    @property
    def tier(self) -> str:
        """Its user's."""
        return self.prompt.person.tier

    @property
    def charge(self) -> int:
        """What it is charged in the end."""
        return self.prompt.input_tokens + self.prompt.output_tokens

    @property
    def is_hit(self) -> bool:
        """Whether the worker that is warm for it took it."""
        return self.warm is not None and self.warm.worker == self.worker

    @property
    def wait_s(self) -> float:
        """From the question to a slot; of a run that has started."""
        assert self.started_at_s is not None
        return self.started_at_s - self.prompt.at_s

    def served(self, at_s: float, pace: Pace) -> float:
        """Tokens that the engine has worked off by then, of prompt and answer."""
        if self.started_at_s is None:
            return 0.0
        since_s = at_s - self.started_at_s
        of_input = min(self.prompt.input_tokens, max(0.0, since_s) * pace.input_tokens_per_s)
        return of_input + self.served_output(at_s, pace)

    def served_output(self, at_s: float, pace: Pace) -> float:
        """Tokens of the answer by then."""
        if self.started_at_s is None:
            return 0.0
        since_s = at_s - self.started_at_s - pace.first_token_s(self.prompt)
        return min(self.prompt.output_tokens, max(0.0, since_s) * pace.tokens_per_s)
