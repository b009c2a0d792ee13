"""How much of real vLLM reaches whoever asks: tokens/s through the product, from bare AsyncLLM, and by vLLM's server.

One core has all that is under test: EngineCore with one thread, and whoever drives it. The bare engine is the product's
own, asked past the product (see `bench.serving.side_door_host`); vLLM's server has one of its own, idle meanwhile. They
take turns, in another order each time. What they do is the same: the same prompt, the same sampling, answers that end
at their cap.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from uuid import UUID

from bench.serving import vllm_server
from bench.serving.bench import Bench, Ours, Target
from bench.serving.beside import NotServing
from bench.serving.endless import endless_model
from bench.serving.figures import Figure
from bench.serving.job import Job
from bench.serving.meter import OTHERS, cpu_s, family, metered
from bench.serving.side_door import HOST, PORT, Burst, Wish
from bench.serving.surfaces import now
from bench.serving.turns import BARE, LOADS, OURS, Load, Turn, Turns, figures
from launcher.child import free_port

PEER_AT_ONCE = 16  # at most
WARM_UP_TOKENS = 8
QUESTION = "Write a long story about a river."
PATIENCE_S = 280.0
IDLE_S = 10.0
PEER = vllm_server.NAME
WRITTEN = "SELECT sum(output_tokens)::int FROM chat_run WHERE id = ANY(%s)"

Runner = Callable[[Load], Awaitable[Turn]]


async def engine(bench: Bench) -> Sequence[Figure]:
    """Ours, the bare engine and vLLM's server in turns."""
    with endless_model(bench.folder) as model:
        port = free_port()
        ours = await bench.ours(_wishes(port))
        await _through(bench, ours, Load(1, WARM_UP_TOKENS), engine_pid=None)
        told = (await Burst.asked(port, Wish(1, WARM_UP_TOKENS))).engine
        runners: dict[str, Runner] = {
            OURS: lambda load: _through(bench, ours, load, told["pid"]),
            BARE: lambda load: _bare(bench, ours, port, load, told["pid"]),
        }
        try:
            bench.say(f"starting {PEER}")
            peer = await vllm_server.serving(bench, model, told)
            await _through(bench, peer, Load(1, WARM_UP_TOKENS), engine_pid=None)
            runners[PEER] = lambda load: _through(bench, peer, load, _busiest(peer.pids["server"]))
        except NotServing as problem:
            bench.say(f"{PEER} is left out: {problem}")
        idle = await _idle_ms_a_second(ours, told["pid"])
        turns = await _taken(bench, runners)
        await bench.close_site()
    what = "CPU of web and worker in a second without requests"
    return [*figures(turns, told, bench.options.pairs), Figure(what, "ms", sum(idle.values()), details=idle)]


def _wishes(port: int) -> Mapping[str, str]:
    return {
        "ENGINE": "vllm",
        "SLOTS": str(max(load.at_once for load in LOADS)),
        "OMP_NUM_THREADS": "1",
        "LOG_LEVEL": "WARNING",
        "BACKGROUND_RUNS": "off",  # titles would be answers too
        "WORKER_HOST": HOST,
        PORT: str(port),
    }


async def _idle_ms_a_second(ours: Ours, engine_pid: int) -> Mapping[str, float]:
    """By process, EngineCore apart: what each token bears a share of, the larger the fewer there are in a second."""
    before, began_at = _cpu(ours.pids, engine_pid), now()
    await asyncio.sleep(IDLE_S)
    seconds = now() - began_at
    after = _cpu(ours.pids, engine_pid)
    return {name: 1000 * (after[name] - before[name]) / seconds for name in ours.pids}


async def _taken(bench: Bench, runners: Mapping[str, Runner]) -> Turns:
    turns: dict[str, dict[Load, list[Turn]]] = {name: {} for name in runners}
    order = list(runners)
    for pair in range(bench.options.pairs):
        for load in LOADS:
            order = [*order[1:], order[0]]
            for name in order:
                if name != PEER or load.at_once <= PEER_AT_ONCE:
                    whose = f"{pair + 1}: {name}, {load}, {load.tokens} tokens"
                    turns[name].setdefault(load, []).append(await _turn(bench, whose, runners[name], load))
    return turns


async def _turn(bench: Bench, whose: str, runner: Runner, load: Load) -> Turn:
    """A turn in which others took too much of the core is taken once more."""
    turn = await runner(load)
    _say(bench, whose, turn)
    if turn.noise.others > OTHERS:
        turn = await runner(load)
        _say(bench, f"{whose}, again", turn)
    return turn


def _say(bench: Bench, whose: str, turn: Turn) -> None:
    bench.say(
        f"{whose}: {turn.per_s:.1f} tokens/s, {turn.per_cpu_s:.1f} a CPU second, {turn.outside_percent:.1f} % outside "
        f"EngineCore, TTFT {turn.ttft_ms:.0f} ms; {turn.noise}"
    )


async def _through(bench: Bench, target: Target, load: Load, engine_pid: int | None) -> Turn:
    """A server's answers over HTTP."""
    job = Job(
        target.surface,
        target.port,
        target.lanes(load.at_once),
        load.at_once,
        at_once=load.at_once,
        content=QUESTION,
        model=target.model,
        max_output_tokens=load.tokens,
        patience_s=PATIENCE_S,
    )
    before = _cpu(target.pids, engine_pid)
    outcome, _ = await bench.run(job, target.pids)
    used = {name: seconds - before[name] for name, seconds in _cpu(target.pids, engine_pid).items()}
    if outcome.failures or not outcome.served:
        raise NotServing(f"{target.name}: {next((each.failure for each in outcome.samples), 'nothing came')}")
    begin = min(sample.sent_at for sample in outcome.served)
    seconds = max(sample.ended_at for sample in outcome.served) - begin
    tokens = load.tokens * len(outcome.served)
    if isinstance(target, Ours):
        [(tokens,)] = target.site.sql(WRITTEN, [[UUID(sample.run_id) for sample in outcome.served]])
    await target.quiet()
    ttft_ms = statistics.median(sample.ttft_ms for sample in outcome.served)
    return Turn(tokens, seconds, ttft_ms, used.pop(""), used, bench.noise[-1])


async def _bare(bench: Bench, ours: Ours, port: int, load: Load, engine_pid: int) -> Turn:
    """The engine's own answers to the same."""
    worker = {"worker": ours.pids["worker"]}
    async with metered(worker, bench.cores) as record:
        before, began_at = _cpu(worker, engine_pid), now()
        burst = await Burst.asked(port, Wish(load.at_once, load.tokens))
        ended_at, used = now(), {name: s - before[name] for name, s in _cpu(worker, engine_pid).items()}
    bench.noise.append(record.noise(began_at, ended_at))
    return Turn(burst.tokens, burst.seconds, statistics.median(burst.ttft_ms), used.pop(""), used, bench.noise[-1])


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
