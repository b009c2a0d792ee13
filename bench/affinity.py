"""What part of their prompts two real workers find in their prefix caches, by which of them a turn goes to.

    MODEL_PATH=.palaver/models/SmolLM2-135M-Instruct python -m bench.affinity [--chats 20] [--turns 6]

A product of its own, servers included, with two workers on real vLLM, one thread each. The same trace, many chats turn
by turn, a few at a time in an order drawn anew for each round, four times: a turn goes to the worker that is warm for
its chat, to any that has a free slot first (nobody is told to be warm), to one drawn at random (said to be warm), and
last with one worker alone. The first words of a chat are its scene's own, so that no scene finds what another left.
Counts come from the rows, and are exact; times to the first token are the client's, on a machine that has only its CPU.
Exits with 1 where affinity's hit ratio is less than 95 % of one worker's.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.long_chat import questions
from bench.simulation.figures import percentile
from bench.ttft import first_delta_at
from tests.faults.world import Plan, World, new_folder, remove, running
from tests.sse_client import Api, Reading

AT_LEAST = 0.95
AT_ONCE, ANSWER_TOKENS = 3, 40
WISHES = {"ENGINE": "vllm", "SLOTS": "8", "OMP_NUM_THREADS": "1"}
ROW = """
    SELECT input_tokens, cached_tokens, worker, coalesce(route->>'decision', 'nobody warm')
      FROM chat_run WHERE id = %s AND status = 'done'
"""
SAY_WARM = """
    UPDATE chat_run SET worker = %s
     WHERE id = (SELECT id FROM chat_run WHERE chat_id = %s AND kind = 'reply' ORDER BY id DESC LIMIT 1)
"""

# Says who was a chat's last worker, before its next turn is asked; None leaves it as it is.
Choose = Callable[[], str] | None


@dataclass(frozen=True, slots=True)
class Turn:
    """The client's milliseconds to its first token, and what the row says."""

    client_ms: float
    input_tokens: int
    cached_tokens: int
    worker: str
    decision: str


class Scene:
    """The trace, once."""

    def __init__(self, world: World, title: str, choose: Choose) -> None:
        [key] = world.users(1)
        self._api, self._database = Api(world.ports[0], key), world.database()
        self._title, self._choose = title, choose
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def play(self, chats: int, turns: int) -> float:
        """All turns of all chats; prints what it came to, and returns the hit ratio behind the first turns."""
        asked = questions(turns)
        ids = [(await self._api.post("/api/chats", {}))["id"] for _ in range(chats)]
        dice, later = random.Random(2), list[Turn]()
        for number, question in enumerate(asked):
            order = dice.sample(range(chats), chats)
            done = await asyncio.gather(*(self._turn(ids[n], self._worded(n, number, question)) for n in order))
            later += done if number else []
        return self._print(later)

    def _worded(self, chat: int, number: int, question: str) -> str:
        return question if number else f"{self._title}, chat {chat}. {question}"

    async def _turn(self, chat_id: str, content: str) -> Turn:
        async with self._gate:
            if self._choose:
                self._database.execute(SAY_WARM, [self._choose(), chat_id])
            began_at = time.perf_counter()
            run = await self._api.ask(content, chat_id, max_output_tokens=ANSWER_TOKENS)
            client_ms = (await first_delta_at(self._api, run["stream"]) - began_at) * 1000
            await self._api.read(run["stream"], Reading())
        [row] = self._database.execute(ROW, [run["run_id"]]).fetchall()
        return Turn(client_ms, *row)

    def _print(self, turns: Sequence[Turn]) -> float:
        ratio = sum(turn.cached_tokens for turn in turns) / sum(turn.input_tokens for turn in turns)
        ttft = [turn.client_ms for turn in turns]
        workers, decisions = (Counter(getattr(turn, name) for turn in turns) for name in ("worker", "decision"))
        print(
            f"{self._title:<16} {ratio:6.1%} cached   TTFT mean {statistics.mean(ttft):5.0f} ms, p95"
            f" {percentile(ttft, 95):5.0f} ms   {told(workers)}; {told(decisions)}",
            flush=True,
        )
        return ratio


def told(counts: Counter[str]) -> str:
    """Each name with its number."""
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


async def measured(chats: int, turns: int) -> bool:
    """All scenes; whether affinity holds what it promises."""
    folder = new_folder()
    try:
        async with running(Plan(workers=2, webs=1, reapers=1, wishes=WISHES), folder) as world:
            return await _scenes(world, chats, turns)
    finally:
        remove(folder)


async def _scenes(world: World, chats: int, turns: int) -> bool:
    dice, names = random.Random(3), [f"{worker.name}@faults" for worker in world.workers]
    chosen: dict[str, Choose] = {"Affinity": None, "Least loaded": lambda: "", "Random": lambda: dice.choice(names)}
    print(f"{chats} chats of {turns} turns, {AT_ONCE} at a time; without the first turns:", flush=True)
    ratios = {title: await Scene(world, title, choose).play(chats, turns) for title, choose in chosen.items()}
    async with world.workers[-1].down(signal.SIGTERM):
        alone = await Scene(world, "One worker", None).play(chats, turns)
    print(f"affinity finds {ratios['Affinity'] / alone:.1%} of what one worker finds (at least {AT_LEAST:.0%})")
    return ratios["Affinity"] >= AT_LEAST * alone


def main() -> None:
    """Measure, print, and check."""
    parser = argparse.ArgumentParser(description="Prefix cache hits of two workers, by routing.")
    parser.add_argument("--chats", type=int, default=20)
    parser.add_argument("--turns", type=int, default=6)
    options: Any = parser.parse_args()
    sys.exit(not asyncio.run(measured(options.chats, options.turns)))


if __name__ == "__main__":
    main()
