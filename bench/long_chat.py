"""What each turn of a long chat computes anew on real vLLM, and how soon its first word comes.

    MODEL_PATH=.palaver/models/SmolLM2-135M-Instruct python -m bench.long_chat [--turns 50] [--eager]

A product of its own, servers included: one worker on real vLLM, whose model's row has a window of 8192 tokens. One
user asks one question after the other over HTTP, each by default when nothing runs in the background any more, with
`--eager` as soon as the answer is there. Counts come from the rows, and are exact; times to the first token are the
client's, from before the POST to the first delta, and the engine's own, from the claim on, both of a machine that has
only its CPU. Exits with 1 where a turn computed more than it may: outside epoch changes its new message, the last
answer's unfinished block and one block.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.ttft import first_delta_at
from tests.faults.world import Plan, World, new_folder, remove, running
from tests.sse_client import Api, Reading

BLOCK = 128  # tokens of a KV cache block on CPU
CACHED_AT_LEAST = 0.9
LONG_ENOUGH = 10  # times what a turn may compute
ANSWER_TOKENS = 100
FOLLOW_UPS_S = 1.0  # until what is due behind an answer has a row
LOOK_EVERY_S = 0.2
WISHES = {"ENGINE": "vllm", "SLOTS": "4"}

FACTS = (
    "Before we begin, two things to keep in mind: my name is Ottoline, and my cabin on the ship has the number 47. "
    "I am going to ask you about many other things now. "
)
RECALL = ("What is my name?", "Which number does my cabin have?")
OPENINGS = ("Tell me about", "What do you know about", "Please explain", "I wonder about", "How would you describe")
THINGS = """
    rivers bridges lighthouses bread clocks violins maps forests deserts whales trains markets gardens stars glass
    paper salt winter harbours islands kites letters candles mountains wool copper apples rain mirrors owls
"""
ASIDES = (
    "which my neighbour talks about whenever we meet on the stairs",
    "since I have to give a short talk on it at the school on Friday",
    "because the book that I am reading says nearly nothing about it",
    "although I am told that people used to see that in another way",
    "and whether it was any different a hundred years ago in small towns",
    "and what somebody who has never heard of it ought to know first",
)

ROW = """
    SELECT input_tokens, cached_tokens, output_tokens, epoch, first_position, left_out,
           extract(epoch FROM first_token_at - started_at)::float * 1000
      FROM chat_run WHERE id = %s AND status = 'done'
"""
IN_BACKGROUND = "SELECT count(*) FROM chat_run WHERE kind <> 'reply' AND status IN ('queued', 'streaming')"
FOLDS = """
    SELECT run.epoch + 1, run.status, summary.upto, run.input_tokens, run.cached_tokens, run.output_tokens,
           summary.warm_tokens, extract(epoch FROM run.finished_at - run.started_at)::float
      FROM chat_run run LEFT JOIN chat_summary summary ON summary.run_id = run.id
     WHERE run.chat_id = %s AND run.kind = 'summary' AND run.finished_at IS NOT NULL ORDER BY run.id
"""
ANSWERS = "SELECT count(token_ids), count(*) FROM chat_message WHERE chat_id = %s AND role = 'assistant'"
SEEN = "SELECT max(position) FROM chat_message WHERE chat_id = %s"
# As if nothing had been folded, and the questions of the end had not been asked.
UNFOLD = "DELETE FROM chat_summary WHERE chat_id = %s"
UNASK = "UPDATE chat_message SET replaced_at = now() WHERE chat_id = %s AND position > %s"


@dataclass(frozen=True, slots=True)
class Turn:
    """The client's milliseconds to its first token, and what the row says."""

    client_ms: float
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    epoch: int
    first_position: int
    left_out: int
    engine_ms: float

    @property
    def computed(self) -> int:
        """Tokens of the prompt that no cache had."""
        return self.input_tokens - self.cached_tokens

    @property
    def hit_ratio(self) -> float:
        """Cached tokens, of all."""
        return self.cached_tokens / self.input_tokens

    def goes_on(self, before: Turn) -> bool:
        """Whether its prompt begins with all of the one before."""
        return (self.epoch, self.first_position) == (before.epoch, before.first_position)

    def may_compute(self, before: Turn) -> int:
        """Its new message with the template's part, the last answer's unfinished block, and one block."""
        said = before.input_tokens + before.output_tokens
        return self.input_tokens - said + said % BLOCK + BLOCK

    def faults(self, before: Turn) -> list[str]:
        """Which of the bounds it breaks."""
        may = self.may_compute(before)
        found = [f"computed {self.computed}, may {may}"] if self.computed > may else []
        if self.input_tokens > LONG_ENOUGH * may and self.hit_ratio < CACHED_AT_LEAST:
            found.append(f"only {self.hit_ratio:.0%} cached")
        return found


class Talk:
    """One user's chat, turn by turn."""

    def __init__(self, world: World, *, is_eager: bool) -> None:
        [key] = world.users(1)
        self._api, self._database, self._is_eager = Api(world.ports[0], key), world.database(), is_eager
        self.chat_id = ""

    async def turn(self, content: str) -> tuple[Turn, str]:
        """Ask, read to the end, and wait for what follows; returns the answer too."""
        self.chat_id = self.chat_id or (await self._api.post("/api/chats", {}))["id"]
        began_at = time.perf_counter()
        asked = await self._api.ask(content, self.chat_id, max_output_tokens=ANSWER_TOKENS)
        client_ms = (await first_delta_at(self._api, asked["stream"]) - began_at) * 1000
        reading = Reading()
        await self._api.read(asked["stream"], reading)
        [row] = self.rows(ROW, asked["run_id"])
        if not self._is_eager:
            await self._quiet()
        return Turn(client_ms, *row), reading.text

    async def recall(self) -> None:
        """Print what becomes of the first turn's facts, with the summary and without."""
        [[seen]] = self.rows(SEEN, self.chat_id)
        await self._quiet()
        self._is_eager = True  # behind turns without a summary comes a fold, which the next is not to have
        await self._answers("with the summary")
        self._database.execute(UNASK, [self.chat_id, seen])
        self._database.execute(UNFOLD, [self.chat_id])
        await self._answers("without it, as much as has room")

    def rows(self, query: str, *names: object) -> list[tuple[Any, ...]]:
        """What the database says."""
        return self._database.execute(query, names).fetchall()

    async def _answers(self, title: str) -> None:
        for question in RECALL:
            turn, answer = await self.turn(question)
            print(f"  {title} ({turn.input_tokens} tokens, {turn.left_out} messages left out): {question}")
            print(f"    {' '.join(answer.split())}", flush=True)

    async def _quiet(self) -> None:
        """Return when nothing runs in the background, nor is about to."""
        await asyncio.sleep(FOLLOW_UPS_S)
        while self.rows(IN_BACKGROUND) != [(0,)]:  # noqa: ASYNC110  (nobody to wake us)
            await asyncio.sleep(LOOK_EVERY_S)


def questions(turns: int) -> Sequence[str]:
    """Of 40 to 60 words each, the same each time; the first tells the facts."""
    dice = random.Random(1)
    asked = [" ".join(_sentence(dice) for _ in range(3)) for _ in range(turns)]
    return [FACTS + asked[0], *asked[1:]]


def _sentence(dice: random.Random) -> str:
    first, second = dice.sample(THINGS.split(), 2)
    return f"{dice.choice(OPENINGS)} {first} and {second}, {dice.choice(ASIDES)}."


def print_turn(number: int, turn: Turn, before: Turn | None) -> list[str]:
    """One line of the table; returns the bounds that it breaks."""
    goes_on = before is not None and turn.goes_on(before)
    may = f"{turn.may_compute(before)}" if before and goes_on else ""
    faults = turn.faults(before) if before and goes_on else []
    notes = [f"epoch {turn.epoch}"] if before and turn.epoch != before.epoch else []
    notes += [f"{turn.left_out} left out"] if turn.left_out else []
    print(
        f"{number:4} {turn.input_tokens:6} {turn.cached_tokens:7} {turn.hit_ratio:6.1%} {turn.computed:9} {may:>5}"
        f" {turn.engine_ms:10.0f} {turn.client_ms:10.0f}   {', '.join([*notes, *map(str.upper, faults)])}".rstrip(),
        flush=True,
    )
    return [f"turn {number}: {fault}" for fault in faults]


def print_figures(turns: Sequence[Turn], talk: Talk) -> None:
    """What it comes to."""
    early, late = ([turn.client_ms for turn in some] for some in (turns[1:5], turns[-5:]))
    print(f"mean TTFT at the client: turns 2 to 5 {statistics.mean(early):.0f} ms, the last five", end=" ")
    print(f"{statistics.mean(late):.0f} ms; other work on the machine is in it")
    beside = statistics.median(turn.client_ms - turn.engine_ms for turn in turns)
    print(f"of it beside the engine's own: median {beside:.0f} ms")
    cached, whole = (sum(getattr(turn, name) for turn in turns) for name in ("cached_tokens", "input_tokens"))
    print(f"hit ratio of the chat: {cached} of {whole} tokens, {cached / whole:.1%}")
    [[kept, answers]] = talk.rows(ANSWERS, talk.chat_id)
    print(f"answers kept with their ids: {kept} of {answers}")
    for epoch, status, upto, given, hit, made, warm, seconds in talk.rows(FOLDS, talk.chat_id):
        print(
            f"epoch {epoch} ({status}), up to message {upto}: {given} tokens in, {hit} of them cached, {made} out,"
            f" {warm} warmed, {seconds:.1f} s"
        )


async def measured(turns: int, *, is_eager: bool) -> list[str]:
    """Talk and print; returns the bounds that were broken."""
    folder = new_folder()
    try:
        async with running(Plan(workers=1, webs=1, reapers=1, wishes=WISHES), folder) as world:
            return await _talked(Talk(world, is_eager=is_eager), turns)
    finally:
        remove(folder)


async def _talked(talk: Talk, turns: int) -> list[str]:
    said: list[Turn] = []
    faults: list[str] = []
    print("turn  input  cached    hit  computed   may  engine ms  client ms", flush=True)
    for number, question in enumerate(questions(turns), start=1):
        turn, _ = await talk.turn(question)
        faults += print_turn(number, turn, said[-1] if said else None)
        said.append(turn)
    print_figures(said, talk)
    print("what it answers at the end about the first turn, reported, not asserted:")
    await talk.recall()
    return faults


def main() -> None:
    """Measure, print, and check."""
    parser = argparse.ArgumentParser(description="What each turn of a long chat computes.")
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--eager", action="store_true", help="ask on while folds and titles are made")
    options = parser.parse_args()
    faults = asyncio.run(measured(options.turns, is_eager=options.eager))
    print("\n".join(faults) or "within bounds: every turn that goes on from the one before")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
