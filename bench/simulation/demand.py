"""Who asks what, and when: traces with very unequal users, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from uuid import UUID

# Real chat traffic is lognormal in both within a user, and unequal between users; longer wishes are cut.
MOST_INPUT_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class Person:
    """A user: how often they ask, and how long their prompts and answers are at the median."""

    id: UUID
    tier: str
    prompts_per_s: float
    input_tokens: float
    output_tokens: float

    @property
    def tokens_per_s(self) -> float:
        """What they ask for."""
        return self.prompts_per_s * (self.input_tokens + self.output_tokens)


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question, and how long its answer will be, which nobody but the engine knows before."""

    at_s: float
    person: Person
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Crowd:
    """Users of tiers, and how unlike each other they are.

    Rates are Pareto distributed: the smaller `alpha`, the more unequal. Lengths are lognormal, with these medians over
    all users; `between` is the sigma of the users' own medians, `within` that of what each of them asks.
    """

    users: int
    prompts_per_s: float
    shares: Mapping[str, float]  # of the users, and of the prompts, by tier
    alpha: float = 1.5
    input_tokens: float = 60
    output_tokens: float = 160
    between: float = 0.8
    within: float = 0.5

    def people(self, dice: random.Random) -> list[Person]:
        """The users themselves."""
        found: list[Person] = []
        for tier, share in self.shares.items():
            rates = [dice.paretovariate(self.alpha) for _ in range(max(1, round(self.users * share)))]
            scale = self.prompts_per_s * share / sum(rates)
            found += [self._person(tier, rate * scale, dice) for rate in rates]
        return found

    def _person(self, tier: str, prompts_per_s: float, dice: random.Random) -> Person:
        longer, wordier = (dice.lognormvariate(0, self.between) for _ in range(2))
        user_id = UUID(int=dice.getrandbits(128), version=4)
        return Person(user_id, tier, prompts_per_s, self.input_tokens * longer, self.output_tokens * wordier)


def prompts(crowd: Sequence[Person], most_output_tokens: int, dice: random.Random, within: float) -> Iterator[Prompt]:
    """For ever, in the order of time: each asks at random, at a steady rate (a Poisson process)."""
    weights = list(accumulate(person.prompts_per_s for person in crowd))
    at_s = 0.0
    while True:
        at_s += dice.expovariate(weights[-1])
        [person] = dice.choices(crowd, cum_weights=weights)
        yield Prompt(
            at_s,
            person,
            _tokens(person.input_tokens, within, MOST_INPUT_TOKENS, dice),
            _tokens(person.output_tokens, within, most_output_tokens, dice),
        )


def _tokens(median: float, sigma: float, most: int, dice: random.Random) -> int:
    return min(most, max(1, round(median * dice.lognormvariate(0, sigma))))
