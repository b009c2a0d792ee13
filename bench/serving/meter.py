"""CPU time and memory of processes, with all that they have started, and how busy others kept their core."""

from __future__ import annotations

import asyncio
import bisect
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import psutil

from bench.serving.surfaces import now

EVERY_S = 0.2
MB = 1e6


def cpu_s(pid: int) -> float:
    """Of a process and its descendants, so far."""
    return sum(_own_cpu_s(each) for each in family(pid))


def family(pid: int) -> Sequence[psutil.Process]:
    """A process and its descendants, while they live."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def _own_cpu_s(process: psutil.Process) -> float:
    """With that of children which have ended: PostgreSQL's come and go."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return float(sum(process.cpu_times()[:4]))
    return 0.0


def memory_mb(pid: int) -> float:
    """Its memory and its descendants', what they share counted once."""
    return float(sum(process.memory_full_info().pss for process in family(pid))) / MB


def resident_mb(pid: int) -> float:
    """A quick look at about the same: of the process alone."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return float(psutil.Process(pid).memory_info().rss) / MB
    return 0.0


@dataclass
class Record:
    """CPU seconds by process, at some moments."""

    pids: Mapping[str, int]
    core: int
    at: list[float] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    megabytes: dict[str, list[float]] = field(default_factory=dict)

    def note(self) -> None:
        """One more moment."""
        self.at.append(now())
        for name, pid in self.pids.items():
            self.seconds.setdefault(name, []).append(cpu_s(pid))
            self.megabytes.setdefault(name, []).append(resident_mb(pid))
        self.seconds.setdefault("", []).append(_busy_s(self.core))

    def used_s(self, name: str, begin: float, end: float) -> float:
        """CPU seconds of a process between two moments; the core's own is called ''."""
        return self._at(self.seconds[name], end) - self._at(self.seconds[name], begin)

    def resident_mb(self, name: str, moment: float) -> float:
        """Memory of a process at a moment."""
        return self._at(self.megabytes[name], moment)

    def others_share(self, begin: float, end: float) -> float:
        """Which part of the core others took meanwhile."""
        ours = sum(self.used_s(name, begin, end) for name in self.pids)
        return max(0.0, self.used_s("", begin, end) - ours) / max(1e-9, end - begin)

    def _at(self, values: Sequence[float], moment: float) -> float:
        """On the line between two moments that were noted."""
        right = min(max(1, bisect.bisect(self.at, moment)), len(self.at) - 1)
        left_at, right_at = self.at[right - 1], self.at[right]
        part = min(1.0, max(0.0, (moment - left_at) / max(1e-9, right_at - left_at)))
        return values[right - 1] + part * (values[right] - values[right - 1])


@asynccontextmanager
async def metered(pids: Mapping[str, int], core: int) -> AsyncIterator[Record]:
    """Note what processes take of a core until the block ends."""
    record = Record(pids, core)
    record.note()
    noting = asyncio.create_task(_note_for_ever(record))
    try:
        yield record
    finally:
        noting.cancel()
        await asyncio.wait({noting})
        record.note()


async def _note_for_ever(record: Record) -> None:
    while True:
        await asyncio.sleep(EVERY_S)
        record.note()


def _busy_s(core: int) -> float:
    times = psutil.cpu_times(percpu=True)[core]
    return float(
        sum(times) - times.idle - times.iowait - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    )
