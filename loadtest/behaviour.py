"""How people chat: how long they think, how much they ask, how long answers they get, when they begin a new chat."""

from __future__ import annotations

import random
from dataclasses import dataclass

# Of a question's length in words: most are a line, some are a page that was pasted. A lognormal, cut.
WORDS_MEDIAN, WORDS_SIGMA, WORDS_MOST = 14.0, 0.9, 250
ANSWER_SIGMA, ANSWER_LEAST, ANSWER_STRETCH = 0.4, 8, 3
OPENINGS = (
    "Tell me at length about",
    "Write a long story about",
    "Explain step by step, with examples,",
    "Compare in detail what is said of",
    "Make a long list of facts about",
    "Describe as fully as you can",
)
TOPICS = (
    "rivers and the towns beside them",
    "how bread is made",
    "the planets of our sun",
    "a lighthouse in a storm",
    "trains that cross the mountains",
    "the history of paper",
    "bees through the year",
    "learning to play the violin",
    "old maps of the sea",
    "a garden in winter",
    "the work of a clockmaker",
    "markets in the early morning",
)
PASTED = (
    "The notes that I have say more than I can sum up by myself.",
    "Some of it was written long ago, and some of it only last week.",
    "There is a part about costs, and one about the people who did the work.",
    "Nobody agrees on where it began, though all name the same three places.",
    "Please keep to what is said here, and say so where you are not sure.",
    "The second page repeats much of the first with other numbers.",
)


@dataclass(frozen=True)
class Behaviour:
    """Of all people of a test: means in seconds and questions; `answer_tokens` is the median of their answers' caps."""

    think_s: float
    turns: float
    answer_tokens: int
    seed: int


class Person:
    """One of them; the same number and seed give the same person."""

    def __init__(self, behaviour: Behaviour, number: int) -> None:
        self._behaviour = behaviour
        self._dice = random.Random(f"{behaviour.seed}/{number}")

    def thinks_s(self) -> float:
        """Until the next question: exponential, since nobody waits for anybody else."""
        return self._dice.expovariate(1 / self._behaviour.think_s)

    def goes_on(self) -> bool:
        """Whether the next question belongs to the same chat: chats have a geometric number of turns."""
        return self._dice.random() >= 1 / self._behaviour.turns

    def question(self) -> str:
        """A text that asks for much."""
        words = f"{self._dice.choice(OPENINGS)} {self._dice.choice(TOPICS)}.".split()
        wanted = min(WORDS_MOST, round(self._dice.lognormvariate(0, WORDS_SIGMA) * WORDS_MEDIAN))
        while len(words) < wanted:
            words += self._dice.choice(PASTED).split()
        return " ".join(words)

    def answer_tokens(self) -> int:
        """The longest answer to it."""
        median = self._behaviour.answer_tokens
        drawn = round(median * self._dice.lognormvariate(0, ANSWER_SIGMA))
        return max(min(ANSWER_LEAST, median), min(ANSWER_STRETCH * median, drawn))
