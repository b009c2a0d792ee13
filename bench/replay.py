"""The simulation's trace, scaled down to two workers, in the simulation and on the real stack, side by side.

    MODEL_PATH=.palaver/models/SmolLM2-135M-Instruct python -m bench.replay [--seconds 300]

The trace is that of `python -m bench.simulation scale`, for an eight-thousandth of its users, prompts and slots, with
the same limits of each user; the queue has more places than that part, which would be three. On the real stack time
runs twice as fast: the scripted engine decodes 80 tokens a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING
from uuid import UUID

from bench.simulation.__main__ import own_valkey, set_up
from bench.simulation.figures import shares
from bench.starts import Rows
from bench.starts import shares as shares_of
from tests.faults.world import Plan, World, new_folder, remove, running
from tests.sse_client import Api, request

if TYPE_CHECKING:
    from bench.simulation.demand import Prompt
    from bench.simulation.scale import Size

FASTER = 2.0
WORKERS, SLOTS, PLACES, PART = 2, 6, 60, 1 / 8000
# What a chat's template and the script's own words add to a word for each token of the answer.
MORE_INPUT_TOKENS = 45
SET_TIER = """
    UPDATE chat_user SET tier_id = %s FROM chat_apikey
     WHERE chat_apikey.user_id = chat_user.id AND digest = encode(sha256(%s::bytea), 'hex')
"""
SET_MODEL = "UPDATE scheduler_model SET queue_depth = %s, max_output_tokens = %s"
SET_LIMITS = """
    UPDATE scheduler_tier SET queue_depth = %s, concurrency = %s, max_output_tokens = %s, budget_tokens = %s,
           refill_tokens_per_hour = %s, shed_at_percent = %s WHERE slug = %s
"""


def small(seconds: float) -> Size:
    """The simulation's size, scaled down."""
    from bench.simulation.cell import Setting
    from bench.simulation.scale import Size

    size = replace(Size(), seconds=seconds, warm_s=60, setting=Setting(workers=WORKERS, slots=SLOTS))
    return replace(size.times(PART), cells=1, waiting=PLACES)


def trace_of(size: Size) -> list[Prompt]:
    """Its prompts, as long as the script makes them on the real stack."""
    trace = takewhile(lambda prompt: prompt.at_s < size.seconds, size.trace())
    return [replace(prompt, input_tokens=prompt.output_tokens + MORE_INPUT_TOKENS) for prompt in trace]


class Replay:
    """A trace on a running product."""

    def __init__(self, world: World, size: Size, trace: Sequence[Prompt]) -> None:
        self._world, self._size, self._trace = world, size, trace
        self.answers: Counter[tuple[str, int]] = Counter()
        people = {prompt.person.id: prompt.person.tier for prompt in trace}
        self._keys: Mapping[UUID, str] = dict(zip(people, world.users(len(people)), strict=True))
        with world.database() as database:
            for user_id, key in self._keys.items():
                database.execute(SET_TIER, [people[user_id], key.encode()])
            database.execute(SET_MODEL, [PLACES, size.most_output_tokens])
            for tier in size.plan().tiers:
                limits = (tier.queue_depth, tier.concurrency, tier.max_output_tokens, tier.budget_tokens)
                refill = round(tier.refill_tokens_per_hour * FASTER)
                database.execute(SET_LIMITS, [*limits, refill, tier.shed_at_percent, tier.slug])

    async def play(self) -> dict[str, float]:
        """Ask at the trace's times; returns the tiers' shares of the tokens of what ended after the warm-up."""
        rows, began_at = Rows(self._world.database()), time.monotonic()
        first = rows.now()
        async with asyncio.TaskGroup() as tasks:
            for prompt in self._trace:
                await asyncio.sleep(began_at + prompt.at_s / FASTER - time.monotonic())
                tasks.create_task(self._ask(prompt))
        since, until = first + self._size.warm_s / FASTER, first + self._size.seconds / FASTER
        return shares_of(rows.within(since, until))

    async def _ask(self, prompt: Prompt) -> None:
        api = Api(self._world.ports[0], self._keys[prompt.person.id])
        chat = (await api.post("/api/chats", {}))["id"]
        script = json.dumps({"text": "word " * prompt.output_tokens})
        body = {"content": f"[[script {script}]]"}
        async with request(api.door, "POST", f"/api/chats/{chat}/messages", api.headers, body) as answer:
            await answer.body()
            self.answers[prompt.person.tier, answer.status] += 1


async def real(size: Size, trace: Sequence[Prompt]) -> Replay:
    """On the real stack; prints."""
    wishes = {
        "SCRIPT_SLOTS": str(SLOTS),
        "SCRIPT_TOKENS_PER_S": str(size.setting.pace.tokens_per_s * FASTER),
        "REQUESTS_PER_MINUTE": "1000000",
    }
    folder = new_folder()
    async with AsyncExitStack() as stack:
        stack.callback(remove, folder)
        world = await stack.enter_async_context(running(Plan(WORKERS, webs=1, reapers=1, wishes=wishes), folder))
        replay = Replay(world, size, trace)
        print_shares("real stack", await replay.play())
        for tier in size.shares:
            asked = sum(count for (of, _), count in replay.answers.items() if of == tier)
            print(f"    {tier}: {asked} asked, {1 - replay.answers[tier, 202] / asked:.1%} refused")
        return replay


def simulate(size: Size, trace: Sequence[Prompt]) -> None:
    """In the simulation; prints."""
    from bench.simulation.scale import played

    with own_valkey() as urls:
        tally = played(size, trace, urls[0])
    print_shares("simulation", shares(tally.served))
    for tier in size.shares:
        refused = sum(count for (of, _), count in tally.refused.items() if of == tier)
        print(f"    {tier}: {tally.asked[tier]} asked after the warm-up, {refused / tally.asked[tier]:.1%} refused")


def print_shares(title: str, found: Mapping[str, float]) -> None:
    """Of the tokens, by tier."""
    print(f"{title}: {', '.join(f'{tier} {share:.1%}' for tier, share in sorted(found.items()))}", flush=True)


def main() -> None:
    """Both."""
    parser = argparse.ArgumentParser(description="One trace in the simulation and on real workers.")
    parser.add_argument("--seconds", type=float, default=600, help="of the trace")
    seconds = parser.parse_args().seconds
    set_up()
    size = small(seconds)
    trace = trace_of(size)
    print(f"{len(trace)} prompts of {len({prompt.person.id for prompt in trace})} users in {seconds:.0f} s")
    simulate(size, trace)
    asyncio.run(real(size, trace))


if __name__ == "__main__":
    main()
