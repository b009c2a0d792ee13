"""The load as Prometheus reads it. Everything is made at the scrape, of rows and of what workers reported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

from django.conf import settings
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from chat.load.picture import ModelLoad, Picture, draw
from chat.load.wanted import wanted_workers
from inference.metering import BOUNDS_S
from inference.reports import Measured, Seen, TierReport

# Metric and help, by what the engine calls it.
ENGINE_GAUGES: Final = {
    "slots": ("palaver_worker_slots", "Runs that the worker generates together at most."),
    "running": ("palaver_worker_running", "Sequences in the engine's batch."),
    "kv_waiting": ("palaver_worker_gate_waiting", "Runs in hand that wait for KV-cache blocks."),
    "kv_cache_usage": ("palaver_worker_kv_cache_usage_ratio", "Share of the KV cache in use."),
}
ENGINE_COUNTERS: Final = {
    "prefix_queries": ("palaver_prefix_cache_queries", "Input tokens that were looked up in the prefix cache."),
    "prefix_hits": ("palaver_prefix_cache_hits", "Input tokens that were found there."),
    "preemptions": ("palaver_preemptions", "Sequences that lost their KV-cache blocks to others."),
}
HISTOGRAMS: Final = {
    "ttft": ("palaver_ttft_seconds", "From the request to the first piece of its answer."),
    "queue_wait": ("palaver_queue_wait_seconds", "From the request until a worker took its run."),
    "inter_token": ("palaver_inter_token_seconds", "Between one token of an answer and the next."),
}
BY_TIER: Final = ("worker", "model", "tier")


class LoadCollector(Collector):
    """One picture a scrape. The series of a worker that does not report any more are gone with its report."""

    def collect(self) -> Iterator[Metric]:
        """Every family, those too that have no series now."""
        picture = draw()
        yield GaugeMetricFamily(
            "palaver_workers_known", "0 while the streams' Redis is away.", value=int(picture.knows_workers)
        )
        yield from _of_tiers(picture)
        yield _wanted(picture)
        yield from _of_workers([seen for load in picture.models for seen in load.serving])
        yield from _of_runs([seen for load in picture.models for seen in load.serving])


def _of_tiers(picture: Picture) -> Iterator[Metric]:
    waiting = GaugeMetricFamily("palaver_waiting_runs", "Runs that no worker has taken.", labels=("model", "tier"))
    oldest = GaugeMetricFamily("palaver_oldest_wait_seconds", "Of those runs.", labels=("model", "tier"))
    weight = GaugeMetricFamily("palaver_tier_weight", "As operators have set it.", labels=("tier",))
    serving = GaugeMetricFamily("palaver_model_workers", "Workers that report.", labels=("model",))
    for load in picture.models:
        if picture.knows_workers:
            serving.add_metric([load.model.pk], len(load.serving))
        for each in load.tiers:
            waiting.add_metric([load.model.pk, each.tier.pk], each.waiting.runs)
            oldest.add_metric([load.model.pk, each.tier.pk], each.waiting.oldest_s)
    for slug, number in _weights(picture.models).items():
        weight.add_metric([slug], number)
    yield from (waiting, oldest, weight, serving)


def _wanted(picture: Picture) -> Metric:
    """No series while nothing is known of workers: an autoscaler that reads none leaves things as they are."""
    wanted = GaugeMetricFamily("palaver_wanted_workers", "For an autoscaler to follow.", labels=("model",))
    for load in picture.models if picture.knows_workers else ():
        wanted.add_metric([load.model.pk], wanted_workers(load, settings.AUTOSCALE_WAIT_S))
    return wanted


def _weights(models: Iterable[ModelLoad]) -> Mapping[str, int]:
    return {each.tier.pk: each.tier.weight for load in models for each in load.tiers}


def _of_workers(serving: Sequence[Seen]) -> Iterator[Metric]:
    labels = ("worker", "model")
    age = GaugeMetricFamily("palaver_worker_report_age_seconds", "Of the latest report.", labels=labels)
    uptime = GaugeMetricFamily("palaver_worker_uptime_seconds", "Since its engine has run.", labels=labels)
    for seen in serving:
        age.add_metric([seen.worker, seen.report.model], seen.age_s)
        uptime.add_metric([seen.worker, seen.report.model], seen.report.up_s)
    yield from (age, uptime)
    for kind, families in ((GaugeMetricFamily, ENGINE_GAUGES), (CounterMetricFamily, ENGINE_COUNTERS)):
        for name, (metric, text) in families.items():
            family = kind(metric, text, labels=labels)
            for seen in serving:
                family.add_metric([seen.worker, seen.report.model], seen.report.engine.get(name, 0))
            yield family


def _of_runs(serving: Sequence[Seen]) -> Iterator[Metric]:
    in_hand = GaugeMetricFamily("palaver_worker_runs", "Runs that the worker holds.", labels=BY_TIER)
    taken = CounterMetricFamily("palaver_runs_taken", "Runs that the worker took.", labels=BY_TIER)
    ended = CounterMetricFamily("palaver_runs_ended", "Runs that ended there.", labels=(*BY_TIER, "status"))
    tokens = CounterMetricFamily("palaver_tokens", "Cached ones are among the input's.", labels=(*BY_TIER, "kind"))
    miscounted = CounterMetricFamily("palaver_miscounted_prompts", "The engine counts otherwise.", labels=BY_TIER)
    charged = CounterMetricFamily("palaver_charged_tokens", "By the price of cached ones.", labels=BY_TIER)
    for labels, part in _parts(serving):
        in_hand.add_metric(labels, part.in_hand)
        taken.add_metric(labels, part.taken)
        charged.add_metric(labels, part.charged_tokens)
        miscounted.add_metric(labels, part.miscounted)
        for status, number in part.ended.items():
            ended.add_metric([*labels, status], number)
        for kind in ("input", "cached", "output"):
            tokens.add_metric([*labels, kind], getattr(part, f"{kind}_tokens"))
    yield from (in_hand, taken, ended, tokens, charged, miscounted)
    for name, (metric, text) in HISTOGRAMS.items():
        yield _histogram(HistogramMetricFamily(metric, text, labels=BY_TIER), name, serving)


def _histogram(family: HistogramMetricFamily, name: str, serving: Sequence[Seen]) -> Metric:
    bounds = [*map(str, map(float, BOUNDS_S[name])), "+Inf"]
    for labels, part in _parts(serving):
        measured: Measured = getattr(part, name)
        # A worker of another release may have other buckets.
        if len(measured.counts) == len(bounds):
            family.add_metric(labels, list(zip(bounds, accumulate(measured.counts), strict=True)), measured.sum_s)
    return family


def _parts(serving: Sequence[Seen]) -> Iterator[tuple[list[str], TierReport]]:
    for seen in serving:
        for tier, part in seen.report.tiers.items():
            yield [seen.worker, seen.report.model, tier], part
