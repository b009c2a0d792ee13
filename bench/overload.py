"""What people meet when three times as many ask as can be served: refusals, waits, and what they were told of them.

    MODEL_PATH=.palaver/models/SmolLM2-135M-Instruct python -m bench.overload [--seconds 60] [--times 3]

A product of its own, servers included, on the scripted engine: no model is loaded, an answer takes two seconds. Users
of Free, Plus and Pro ask in equal numbers, at a steady rate that does not wait for answers, three times what the worker
can take. Before it, the same requests come one at a time to a system at rest: the control. Of each run that has to wait
the `eta_s` of every `queued` event is compared with the time that its start was really away.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.faults.world import Plan, World, new_folder, remove, running
from tests.sse_client import Api, Event, EventParser, request

SLOTS = 8
TOKENS_PER_S = 50
ANSWER_S = 2.0
CAPACITY_PER_S = SLOTS / ANSWER_S
TIERS = {"free": 40, "plus": 60, "pro": 80}  # of a model's queue of 80, where each is refused
MODEL_DEPTH = 80
CONTROLS = 60
POLL_S = 0.05
# A shorter wait is over before anybody reads how long it is.
WORTH_TELLING_S = 2.0
SCRIPT = {
    "SCRIPT_SLOTS": str(SLOTS),
    "SCRIPT_TOKENS_PER_S": str(TOKENS_PER_S),
    "SCRIPT_TEXT": "word " * round(TOKENS_PER_S * ANSWER_S),  # a token each
}
LIMITS = """
    UPDATE scheduler_model SET queue_depth = %(depth)s;
    UPDATE scheduler_tier SET queue_depth = %(depth)s, concurrency = 10000, queue_deadline_s = 86400,
           budget_tokens = 2000000000, refill_tokens_per_hour = 2000000000;
"""
DEPTH = "SELECT count(*) FROM chat_run WHERE status = 'queued' AND kind = 'reply'"


@dataclass
class Estimate:
    """What somebody who waits was told, and when."""

    told_at: float
    eta_s: float


@dataclass
class Figures:
    """What was seen."""

    control_s: list[float] = field(default_factory=list)
    admitted_s: list[float] = field(default_factory=list)
    refused_s: list[float] = field(default_factory=list)
    retry_after_s: list[int] = field(default_factory=list)
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    waits_s: dict[str, list[float]] = field(default_factory=lambda: {tier: [] for tier in TIERS})
    first_errors: list[float] = field(default_factory=list)
    all_errors: list[float] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)

    def note_wait(self, tier: str, asked_at: float, started_at: float, estimates: Sequence[Estimate]) -> None:
        """A run that was admitted has started."""
        self.waits_s[tier].append(started_at - asked_at)
        errors = [
            (estimate.eta_s - left) / left
            for estimate in estimates
            if (left := started_at - estimate.told_at) > WORTH_TELLING_S
        ]
        self.first_errors += errors[:1]
        self.all_errors += errors


@dataclass(frozen=True)
class Asker:
    """A user of a tier."""

    tier: str
    api: Api

    async def ask(self, figures: Figures) -> None:
        """Ask in a new chat, and follow the run to its start."""
        chat = (await self.api.post("/api/chats", {}))["id"]
        asked_at = time.monotonic()
        path = f"/api/chats/{chat}/messages"
        async with request(self.api.door, "POST", path, self.api.headers, {"content": "Hi"}) as answer:
            body = await answer.json()
        took_s = time.monotonic() - asked_at
        figures.answers[self.tier, answer.status] += 1
        if answer.status == 202:
            figures.admitted_s.append(took_s)
            await self._follow(body["stream"], asked_at, figures)
        else:
            figures.refused_s.append(took_s)
            figures.retry_after_s.append(int(answer.headers["retry-after"]))

    async def _follow(self, stream: str, asked_at: float, figures: Figures) -> None:
        estimates: list[Estimate] = []
        async with self.api.stream(stream) as answer:
            parser = EventParser()
            async for chunk in answer.chunks():
                for event in parser.feed(chunk):
                    if event.name == "started":
                        figures.note_wait(self.tier, asked_at, time.monotonic(), estimates)
                        return
                    estimates += _estimate(event)


def _estimate(event: Event) -> Iterable[Estimate]:
    eta_s = event.data.get("eta_s")
    return [] if event.name != "queued" or eta_s is None else [Estimate(time.monotonic(), eta_s)]


def askers_of(world: World) -> list[Asker]:
    """A few users of each tier, without limits of their own."""
    keys = world.users(3 * len(TIERS))
    tiers = [tier for tier in TIERS for _ in range(3)]
    with world.database() as database:
        database.execute(LIMITS.replace("%(depth)s", str(MODEL_DEPTH)))
        for tier, depth in TIERS.items():
            percent = 100 * depth // MODEL_DEPTH
            database.execute("UPDATE scheduler_tier SET shed_at_percent = %s WHERE slug = %s", [percent, tier])
        for key, tier in zip(keys, tiers, strict=True):
            database.execute(
                "UPDATE chat_user SET tier_id = %s FROM chat_apikey"
                " WHERE chat_apikey.user_id = chat_user.id AND digest = encode(sha256(%s::bytea), 'hex')",
                [tier, key.encode()],
            )
    ports = world.ports
    return [Asker(tier, Api(ports[n % len(ports)], key)) for n, (tier, key) in enumerate(zip(tiers, keys, strict=True))]


async def control(askers: Sequence[Asker], figures: Figures) -> None:
    """One question at a time, to a system at rest."""
    for number in range(CONTROLS):
        await askers[number % len(askers)].ask(figures)
        await asyncio.sleep(ANSWER_S / SLOTS)
    figures.control_s, figures.admitted_s = figures.admitted_s, []
    figures.answers.clear()
    figures.waits_s = {tier: [] for tier in TIERS}


async def overload(world: World, askers: Sequence[Asker], figures: Figures, seconds: float, times: float) -> None:
    """Ask at a steady rate, whatever comes of it."""
    period_s = 1 / (times * CAPACITY_PER_S)
    began_at = time.monotonic()
    tasks: set[asyncio.Task[None]] = set()
    polling = asyncio.create_task(_poll_depth(world, figures))
    for number in range(round(seconds / period_s)):
        await asyncio.sleep(began_at + number * period_s - time.monotonic())
        tasks.add(asyncio.create_task(askers[number % len(askers)].ask(figures)))
        if number % round(10 / period_s) == 0:
            print(f"{number * period_s:.0f} s: {sum(figures.answers.values())} answered", flush=True)
    await asyncio.gather(*tasks)
    polling.cancel()


async def _poll_depth(world: World, figures: Figures) -> None:
    with world.database() as database:
        while True:
            figures.depths.append(database.execute(DEPTH).fetchall()[0][0])
            await asyncio.sleep(POLL_S)


async def measured(seconds: float, times: float) -> Figures:
    """All of it."""
    folder = new_folder()
    try:
        wishes = {**SCRIPT, "REQUESTS_PER_MINUTE": "1000000", "STREAMS_PER_USER": "10000"}
        async with running(Plan(workers=1, webs=2, reapers=1, wishes=wishes), folder) as world:
            askers, figures = askers_of(world), Figures()
            print("control", flush=True)
            await control(askers, figures)
            await overload(world, askers, figures, seconds, times)
            return figures
    finally:
        remove(folder)


def milliseconds(times_s: Sequence[float]) -> str:
    """Median and 99th percentile."""
    p99_s = sorted(times_s)[int(0.99 * len(times_s))]
    return f"median {1000 * statistics.median(times_s):.0f} ms, p99 {1000 * p99_s:.0f} ms"


def report(figures: Figures) -> None:
    """Print."""
    print(f"waiting at once: at most {max(figures.depths)} of {MODEL_DEPTH} allowed")
    for tier in TIERS:
        counts = {status: count for (of, status), count in sorted(figures.answers.items()) if of == tier}
        waits = figures.waits_s[tier]
        told = f"waited {statistics.median(waits):.1f} s (median), {max(waits):.1f} s (most)" if waits else "none began"
        print(f"{tier:5} {counts}: {told}")
    print(f"control, admitted at rest:  {milliseconds(figures.control_s)} of {len(figures.control_s)}")
    print(f"admitted in the overload:   {milliseconds(figures.admitted_s)} of {len(figures.admitted_s)}")
    print(f"refused in the overload:    {milliseconds(figures.refused_s)} of {len(figures.refused_s)}")
    print(f"Retry-After: median {statistics.median(figures.retry_after_s):.0f} s")
    for name, errors in (("first told", figures.first_errors), ("all told", figures.all_errors)):
        off, bias = statistics.median(map(abs, errors)), statistics.median(errors)
        print(f"estimates, {name}: median {off:.0%} off the true wait, {bias:+.0%} with its sign, of {len(errors)}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Refusals, waits and estimates under overload.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--times", type=float, default=3)
    arguments = parser.parse_args()
    report(asyncio.run(measured(arguments.seconds, arguments.times)))


if __name__ == "__main__":
    main()
