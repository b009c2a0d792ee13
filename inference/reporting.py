"""Tells the streams' Redis every two seconds how a worker does: one round trip, beside its runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from redis.asyncio import Redis
from redis.exceptions import RedisError

from inference import reports
from inference.host import Runner
from inference.metering import Histogram, Tally
from inference.reports import KEY, Measured, Report, TierReport

logger = logging.getLogger(__name__)

NOW_S = 10.0
RECENT_S = 60.0
CANCEL_AGAIN_S = 0.1
LEAVE_S = 1.0  # for taking the report away at the end


class Window:
    """Totals that only grow, as they were over the last minute."""

    def __init__(self) -> None:
        self._kept: deque[tuple[float, Mapping[str, float]]] = deque()

    def add(self, at_s: float, totals: Mapping[str, float]) -> None:
        """The totals at a moment of any clock that only goes forward."""
        self._kept.append((at_s, totals))
        # One from before its beginning stays: from there on a whole minute is known.
        while len(self._kept) > 1 and self._kept[1][0] <= at_s - RECENT_S:
            self._kept.popleft()

    def grown(self, name: str, span_s: float) -> float:
        """By how much a total has grown in that time, or since the first one if that was later."""
        (_, begun), (_, ended) = self._ends(span_s)
        return ended.get(name, 0) - begun.get(name, 0)

    def rate(self, name: str, span_s: float) -> float:
        """The same, a second."""
        (begun_at, _), (ended_at, _) = self._ends(span_s)
        return self.grown(name, span_s) / (ended_at - begun_at) if ended_at > begun_at else 0.0

    def _ends(self, span_s: float) -> tuple[tuple[float, Mapping[str, float]], tuple[float, Mapping[str, float]]]:
        last = self._kept[-1]
        before = [kept for kept in self._kept if kept[0] <= last[0] - span_s]
        return (before[-1] if before else self._kept[0]), last


@dataclass(frozen=True, slots=True)
class Reporting:
    """Who reports, on which model, and who knows."""

    worker_name: str
    model: str
    runner: Runner


class Reporter:
    """Writes reports until closed, then takes the last one away. While Redis is away it goes without."""

    def __init__(self, redis: Redis, reporting: Reporting, report_s: float = reports.REPORT_S) -> None:
        self._redis = redis
        self._reporting = reporting
        self._report_s = report_s
        self._started_at = time.monotonic()
        self._window = Window()
        self._write = redis.register_script(reports.WRITE)
        self._is_known = True
        self._is_closed = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._report_for_ever(), name="reports")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._is_closed = True
        # Until it ends: a cancel that meets a timeout inside redis-py is lost there.
        while not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=CANCEL_AGAIN_S)
        with contextlib.suppress(RedisError, OSError):  # else it ages away
            async with asyncio.timeout(LEAVE_S):
                await self._redis.hdel(KEY, self._reporting.worker_name)

    def report(self) -> Report:
        """The worker as it is now; rates are from one call to the next."""
        now_s, runner = time.monotonic(), self._reporting.runner
        engine, tallies = dict(runner.report()), runner.meter.tallies
        self._window.add(now_s, {**engine, **_totals(tallies)})
        queries = self._window.grown("prefix_queries", RECENT_S)
        return Report(
            model=self._reporting.model,
            up_s=now_s - self._started_at,
            input_tokens_per_s=self._window.rate("input_tokens", NOW_S),
            output_tokens_per_s=self._window.rate("output_tokens", NOW_S),
            prefix_hit_rate=self._window.grown("prefix_hits", RECENT_S) / queries if queries else None,
            engine=engine,
            tiers={tier: self._tier(tier, tally) for tier, tally in tallies.items()},
        )

    def _tier(self, tier: str, tally: Tally) -> TierReport:
        return TierReport(
            in_hand=tally.in_hand,
            taken=tally.taken,
            input_tokens=tally.input_tokens,
            cached_tokens=tally.cached_tokens,
            output_tokens=tally.output_tokens,
            charged_tokens=tally.charged_tokens,
            miscounted=tally.miscounted,
            ended=dict(tally.ended),
            taken_per_s=self._window.rate(f"taken:{tier}", RECENT_S),
            charged_per_s=self._window.rate(f"charged:{tier}", RECENT_S),
            ttft=_measured(tally.ttft),
            queue_wait=_measured(tally.queue_wait),
            inter_token=_measured(tally.inter_token),
        )

    async def _report_for_ever(self) -> None:
        while not self._is_closed:
            try:
                await self._tell(self.report())
            except (RedisError, OSError) as error:
                self._note_away(error)
            except Exception:
                logger.exception("reports.not_written")
            await asyncio.sleep(self._report_s)

    async def _tell(self, report: Report) -> None:
        await self._write(keys=[KEY], args=[self._reporting.worker_name, report.encoded(), reports.REMEMBERED_S])
        self._is_known = True

    def _note_away(self, error: Exception) -> None:
        """Said once an outage."""
        if self._is_known:
            logger.warning("reports.away error=%s", type(error).__name__)
        self._is_known = False


def _totals(tallies: Mapping[str, Tally]) -> dict[str, float]:
    taken = {f"taken:{tier}": tally.taken for tier, tally in tallies.items()}
    return {**taken, **{f"charged:{tier}": tally.charged_tokens for tier, tally in tallies.items()}}


def _measured(histogram: Histogram) -> Measured:
    return Measured(tuple(histogram.counts), round(histogram.sum_s, 6))
