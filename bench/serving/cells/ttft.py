"""What a server adds to the time to the first token: to one who asks alone, and at a rate; and where it goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bench.serving import script
from bench.serving.bench import Bench, Target
from bench.serving.figures import Bound, Figure, percentile, spread
from bench.serving.job import Job, Outcome, Sample
from bench.serving.site import Times

WARM_UP, ALONE = 20, 120
PAUSE_S = 0.05
RATE_S = 20.0
RATES: Mapping[int, Bound | None] = {10: Bound(60), 25: None, 50: None}
NONE_FAIL = Bound(0)


@dataclass(frozen=True)
class Measured:
    """One server's outcomes: of requests one at a time, and by requests a second."""

    alone: Outcome
    at_rate: Mapping[int, Outcome]


def added_ms(outcome: Outcome) -> Sequence[float]:
    """What came on top of the engine's own time."""
    return [sample.ttft_ms - script.FIRST_TOKEN_MS for sample in outcome.served]


async def ttft(bench: Bench) -> Sequence[Figure]:
    """Ours, bare parts and every other server, one after the other."""
    ours = await bench.ours(script.replies())
    own = await _measured(bench, ours, ours.site.world.streams_url)
    where = stages(own.alone, ours.site.times([sample.run_id for sample in own.alone.served]))
    parts = await _measured(bench, await bench.bare())
    peers = {name: await _measured(bench, peer) for name, peer in bench.peers.items()}
    return [*_compared(own, parts, peers), *where]


async def _measured(bench: Bench, target: Target, streams_url: str = "") -> Measured:
    alone = Job(target.surface, target.port, target.lanes(WARM_UP), WARM_UP, pause_s=PAUSE_S, model=target.model)
    await bench.run(alone, target.pids)
    alone = replace(alone, lanes=target.lanes(ALONE), count=ALONE, streams_url=streams_url)
    outcome, _ = await bench.run(alone, target.pids)
    bench.say(f"{target.name}, one at a time: {_told(outcome)}")
    return Measured(outcome, {rate: await _at(bench, target, rate) for rate in RATES})


async def _at(bench: Bench, target: Target, rate: int) -> Outcome:
    count = round(rate * RATE_S)
    job = Job(target.surface, target.port, target.lanes(count), count, per_s=rate, model=target.model)
    outcome, _ = await bench.run(job, target.pids)
    bench.say(f"{target.name}, {rate} requests/s: {_told(outcome)}; {bench.noise[-1]}")
    await target.quiet()
    return outcome


def _told(outcome: Outcome) -> str:
    added = added_ms(outcome)
    if not added:
        return f"all {outcome.failures} failed, the first with {outcome.samples[0].failure}"
    return (
        f"p50 {percentile(added, 50):.1f} ms, p99 {percentile(added, 99):.1f} ms added, {outcome.failures} of "
        f"{len(outcome.samples)} failed, the generator took {outcome.cpu_share:.0%} of its core"
    )


def _compared(own: Measured, parts: Measured, peers: Mapping[str, Measured]) -> Sequence[Figure]:
    def figure(what: str, bound: Bound | None, of: Callable[[Measured], Outcome], percent: float) -> Figure:
        return Figure(
            what,
            "ms",
            _percentile(of(own), percent),
            bound,
            {name: _percentile(of(peer), percent) for name, peer in peers.items()},
            _percentile(of(parts), percent),
            {"ours": spread(added_ms(of(own))), "the parts alone": spread(added_ms(of(parts)))},
        )

    def at(rate: int) -> Callable[[Measured], Outcome]:
        return lambda measured: measured.at_rate[rate]

    def failed(rate: int) -> Figure:
        by_peer = {name: float(peer.at_rate[rate].failures) for name, peer in peers.items()}
        what = f"of {round(rate * RATE_S)} at {rate} requests/s, failed"
        reasons = {name: dict(measured.at_rate[rate].reasons) for name, measured in {"ours": own, **peers}.items()}
        failures = parts.at_rate[rate].failures
        return Figure(what, "", own.at_rate[rate].failures, NONE_FAIL, by_peer, failures, reasons)

    figures = [
        figure("TTFT added, one at a time, p50", Bound(20), lambda measured: measured.alone, 50),
        figure("TTFT added, one at a time, p99", Bound(40), lambda measured: measured.alone, 99),
    ]
    for rate, bound in RATES.items():
        for percent in (50, 99):
            what, held = f"TTFT added, {rate} requests/s, p{percent}", bound if percent == 99 else None
            figures.append(figure(what, held, at(rate), percent))
        figures.append(failed(rate))
    return figures


def _percentile(outcome: Outcome, percent: float) -> float | None:
    added = added_ms(outcome)
    return percentile(added, percent) if added else None


def stages(outcome: Outcome, times: Mapping[str, Times]) -> Sequence[Figure]:
    """Medians of what lies between two moments of one request, in their order; both clocks are the machine's."""
    pairs = [(sample, times[sample.run_id]) for sample in outcome.served if sample.run_id in times]

    def stage(what: str, of: Callable[[Sample, Times], float]) -> Figure:
        spent = [1000 * of(sample, row) for sample, row in pairs]
        median = percentile(spent, 50) if spent else None
        return Figure(f"stage, one at a time, p50: {what}", "ms", median, details=spread(spent))

    return [
        stage("POST sent to its run's row", lambda sample, row: row.created_at - sample.sent_at),
        stage("row to a worker's claim", lambda _, row: row.started_at - row.created_at),
        stage(
            "claim to the first delta's entry in the stream, without the engine's time",
            lambda sample, row: sample.stored_at - row.started_at - script.FIRST_TOKEN_MS / 1000,
        ),
        stage("entry to the client's first delta", lambda sample, _: sample.first_at - sample.stored_at),
        # Not between two of the others: a release may be noted behind the claim that it led to.
        stage("beside them: row to its release", lambda _, row: row.released_at - row.created_at),
        stage("beside them: POST sent to its answer", lambda sample, _: sample.posted_at - sample.sent_at),
    ]
