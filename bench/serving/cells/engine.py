"""How much of real vLLM reaches whoever asks: tokens/s through the product, from bare AsyncLLM, and by vLLM's server.

One core has all that is under test: EngineCore with one thread, and whoever drives it. The bare engine is the product's
own, asked past the product (see `bench.serving.side_door_host`); vLLM's server has one of its own, idle meanwhile. They
take turns, in another order each time. What they do is the same: the same prompt, the same sampling, answers that end
at their cap.
"""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from bench.serving import vllm_server
from bench.serving.bench import Bench, Ours, Target
from bench.serving.beside import NotServing
from bench.serving.endless import endless_model
from bench.serving.figures import Bound, Figure, at_least
from bench.serving.job import Job
from bench.serving.meter import cpu_s, family, metered
from bench.serving.side_door import HOST, PORT, Burst, Wish
from bench.serving.surfaces import now
from tests.stack.stack import free_port

AT_ONCE = (1, 8, 16, 32)
PEER_AT_ONCE = (1, 8, 16)
JUDGED = 16
TOKENS = 64
QUESTION = "Write a long story about a river."
PATIENCE_S = 280.0
OURS, BARE, PEER = "ours", "the parts alone", vllm_server.NAME
WRITTEN = "SELECT sum(output_tokens)::int FROM chat_run WHERE id = ANY(%s)"


@dataclass(frozen=True)
class Turn:
    """One server's turn: what came, and what CPU it took, EngineCore apart."""

    tokens: int
    seconds: float
    ttft_ms: float  # in the median
    engine_s: float
    outside_s: Mapping[str, float]  # by process
    noise: float

    @property
    def per_s(self) -> float:
        """Tokens in a second."""
        return self.tokens / self.seconds

    @property
    def per_cpu_s(self) -> float:
        """Tokens for a second of the core: what others on the machine take does not count."""
        return self.tokens / (self.engine_s + sum(self.outside_s.values()))

    @property
    def outside_percent(self) -> float:
        """CPU outside of EngineCore, to that of EngineCore."""
        return 100 * sum(self.outside_s.values()) / self.engine_s


Turns = Mapping[str, Mapping[int, Sequence[Turn]]]  # by server and by how many at once


async def engine(bench: Bench) -> Sequence[Figure]:
    """Ours, the bare engine and vLLM's server in turns."""
    with endless_model(bench.folder) as model:
        port = free_port()
        ours = await bench.ours(_wishes(port))
        await _through(bench, ours, 1, cpu_of=None)
        told = (await Burst.asked(port, Wish(1, 8))).engine
        runners: dict[str, Runner] = {
            OURS: lambda at_once: _through(bench, ours, at_once, told["pid"]),
            BARE: lambda at_once: _bare(bench, ours, port, at_once, told["pid"]),
        }
        try:
            bench.say(f"starting {PEER}")
            peer = await vllm_server.serving(bench, model, told)
            await _through(bench, peer, 1, cpu_of=None)
            runners[PEER] = lambda at_once: _through(bench, peer, at_once, _busiest(peer.pids["server"]))
        except NotServing as problem:
            bench.say(f"{PEER} is left out: {problem}")
        turns = await _taken(bench, runners)
        await bench.close_site()
    return _figures(turns, told, bench.options.pairs)


Runner = Callable[[int], Awaitable[Turn]]


def _wishes(port: int) -> Mapping[str, str]:
    return {
        "ENGINE": "vllm",
        "SLOTS": str(max(AT_ONCE)),
        "OMP_NUM_THREADS": "1",
        "LOG_LEVEL": "WARNING",
        "BACKGROUND_RUNS": "off",  # titles would be answers too
        "WORKER_HOST": HOST,
        PORT: str(port),
    }


async def _taken(bench: Bench, runners: Mapping[str, Runner]) -> Turns:
    turns: dict[str, dict[int, list[Turn]]] = {name: {} for name in runners}
    order = list(runners)
    for pair in range(bench.options.pairs):
        for at_once in AT_ONCE:
            order = [*order[1:], order[0]]
            for name in order:
                if name != PEER or at_once in PEER_AT_ONCE:
                    turn = await runners[name](at_once)
                    turns[name].setdefault(at_once, []).append(turn)
                    _say(bench, pair, name, at_once, turn)
    return turns


def _say(bench: Bench, pair: int, name: str, at_once: int, turn: Turn) -> None:
    bench.say(
        f"{pair + 1}: {name}, {at_once} at once: {turn.per_s:.1f} tokens/s, {turn.per_cpu_s:.1f} a CPU second, "
        f"{turn.outside_percent:.1f} % outside EngineCore, TTFT {turn.ttft_ms:.0f} ms; "
        f"{turn.noise:.0%} of the core to others"
    )


async def _through(bench: Bench, target: Target, at_once: int, cpu_of: int | None) -> Turn:
    """A server's answers over HTTP; `cpu_of` is the process id of its EngineCore."""
    job = Job(
        target.surface,
        target.port,
        target.lanes(at_once),
        at_once,
        at_once=at_once,
        content=QUESTION,
        model=target.model,
        max_output_tokens=TOKENS,
        patience_s=PATIENCE_S,
    )
    before = _cpu(target.pids, cpu_of)
    outcome, _ = await bench.run(job, target.pids)
    used = {name: seconds - before[name] for name, seconds in _cpu(target.pids, cpu_of).items()}
    if outcome.failures or not outcome.served:
        raise NotServing(f"{target.name}: {next((each.failure for each in outcome.samples), 'nothing came')}")
    begin = min(sample.sent_at for sample in outcome.served)
    seconds = max(sample.ended_at for sample in outcome.served) - begin
    tokens = TOKENS * len(outcome.served)
    if isinstance(target, Ours) and target.site is not None:
        [(tokens,)] = target.site.sql(WRITTEN, [[UUID(sample.run_id) for sample in outcome.served]])
        await target.site.quiet()
    ttft_ms = statistics.median(sample.ttft_ms for sample in outcome.served)
    return Turn(tokens, seconds, ttft_ms, used.pop(""), used, bench.noise[-1])


async def _bare(bench: Bench, ours: Ours, port: int, at_once: int, engine_pid: int) -> Turn:
    """The engine's own answers to the same."""
    worker = {"worker": ours.pids["worker"]}
    async with metered(worker, bench.cores.server) as record:
        before, began_at = _cpu(worker, engine_pid), now()
        burst = await Burst.asked(port, Wish(at_once, TOKENS))
        ended_at, used = now(), {name: s - before[name] for name, s in _cpu(worker, engine_pid).items()}
    noise = record.others_share(began_at, ended_at)
    bench.noise.append(noise)
    return Turn(burst.tokens, burst.seconds, statistics.median(burst.ttft_ms), used.pop(""), used, noise)


def _cpu(pids: Mapping[str, int], engine_pid: int | None) -> dict[str, float]:
    """CPU seconds so far, EngineCore's under '' and left out elsewhere."""
    engine_s = cpu_s(engine_pid) if engine_pid else 0.0
    whole = {name: cpu_s(pid) for name, pid in pids.items()}
    holder = next((name for name, pid in pids.items() if engine_pid in {each.pid for each in family(pid)}), None)
    return {**whole, **({holder: whole[holder] - engine_s} if holder else {}), "": engine_s}


def _busiest(pid: int) -> int:
    """EngineCore, of a server and what it has started."""
    children: list[int] = [each.pid for each in family(pid) if each.pid != pid]
    return max(children, key=cpu_s)


def _figures(turns: Turns, told: Mapping[str, object], pairs: int) -> Sequence[Figure]:
    lines = [line for at_once in AT_ONCE for line in _of(turns, at_once, pairs)]
    details = {"engine": told, "tokens of an answer": TOKENS, **{name: turns[name] for name in turns}}
    return [Figure("engine turns", "pairs", pairs, details=details), *lines]


def _of(turns: Turns, at_once: int, pairs: int) -> Sequence[Figure]:
    """Medians at so many requests at once; only where the issue is decided with bounds."""
    is_judged = at_once == JUDGED

    def figure(what: str, unit: str, value: Callable[[Turn], float], bound: Bound | None = None) -> Figure:
        found = {name: statistics.median(map(value, by[at_once])) for name, by in turns.items() if at_once in by}
        peers = {PEER: found[PEER]} if PEER in found else {}
        return Figure(f"{what}, {at_once} at once", unit, found[OURS], bound, peers, found[BARE])

    def over_bare(what: str, value: Callable[[Turn], float], bound: Bound | None = None) -> Figure:
        found = {name: _ratio(by[at_once], turns[BARE][at_once], value) for name, by in turns.items() if at_once in by}
        peers = {PEER: found[PEER]} if PEER in found else {}
        what = f"{what} over bare AsyncLLM's, median of {pairs} pairs, {at_once} at once"
        return Figure(what, "×", found[OURS], bound, peers, found[BARE])

    return [
        figure("real vLLM: tokens/s", "1/s", lambda turn: turn.per_s),
        over_bare("tokens/s", lambda turn: turn.per_s, at_least(0.97) if is_judged else None),
        over_bare("tokens a CPU second", lambda turn: turn.per_cpu_s),
        figure(
            "CPU outside EngineCore to its own", "%", lambda turn: turn.outside_percent, Bound(3) if is_judged else None
        ),
        figure("real vLLM: TTFT p50", "ms", lambda turn: turn.ttft_ms),
    ]


def _ratio(turns: Sequence[Turn], bare: Sequence[Turn], value: Callable[[Turn], float]) -> float:
    return statistics.median(value(ours) / value(other) for ours, other in zip(turns, bare, strict=True))
