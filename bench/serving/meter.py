"""CPU time and memory of processes, with all that they have started, and how busy others kept their core."""

from __future__ import annotations

import asyncio
import bisect
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import psutil

from bench.serving.cores import Cores
from bench.serving.surfaces import now

EVERY_S = 0.2
MB = 1e6
SERVER, LOAD = "core of the server", "core of the load"
OTHERS, LOAD_BUSY = 0.1, 0.9


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


@dataclass(frozen=True)
class Noise:
    """Which part of the server's core others took, and how busy the load's core was, with all that belongs there."""

    others: float = 0.0
    load: float = 0.0

    @property
    def spoils(self) -> bool:
        """Whether what was measured beside it says little of the server."""
        return self.others > OTHERS or self.load > LOAD_BUSY

    def __str__(self) -> str:
        return f"others took {self.others:.0%} of the server's core, the load's was busy for {self.load:.0%}"


@dataclass
class Record:
    """CPU seconds by process and core, at some moments."""

    pids: Mapping[str, int]
    cores: Cores
    at: list[float] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    megabytes: dict[str, list[float]] = field(default_factory=dict)

    def note(self) -> None:
        """One more moment."""
        self.at.append(now())
        for name, pid in self.pids.items():
            self.seconds.setdefault(name, []).append(cpu_s(pid))
            self.megabytes.setdefault(name, []).append(resident_mb(pid))
        self.seconds.setdefault(SERVER, []).append(_busy_s(self.cores.server))
        self.seconds.setdefault(LOAD, []).append(_busy_s(self.cores.load))

    def used_s(self, name: str, begin: float, end: float) -> float:
        """CPU seconds of a process, or of a whole core, between two moments."""
        return self._at(self.seconds[name], end) - self._at(self.seconds[name], begin)

    def resident_mb(self, name: str, moment: float) -> float:
        """Memory of a process at a moment."""
        return self._at(self.megabytes[name], moment)

    def noise(self, begin: float, end: float) -> Noise:
        """How far others were in the way meanwhile."""
        seconds = max(1e-9, end - begin)
        ours = sum(self.used_s(name, begin, end) for name in self.pids)
        others = max(0.0, self.used_s(SERVER, begin, end) - ours)
        return Noise(others / seconds, self.used_s(LOAD, begin, end) / seconds)

    def _at(self, values: Sequence[float], moment: float) -> float:
        """On the line between two moments that were noted."""
        right = min(max(1, bisect.bisect(self.at, moment)), len(self.at) - 1)
        left_at, right_at = self.at[right - 1], self.at[right]
        part = min(1.0, max(0.0, (moment - left_at) / max(1e-9, right_at - left_at)))
        return values[right - 1] + part * (values[right] - values[right - 1])


@asynccontextmanager
async def metered(pids: Mapping[str, int], cores: Cores) -> AsyncIterator[Record]:
    """Note what processes take until the block ends."""
    record = Record(pids, cores)
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
