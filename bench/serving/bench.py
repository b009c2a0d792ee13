"""What cells measure with: the product, bare parts and other servers, started when first asked for, and the load."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.serving import beside, site
from bench.serving.beside import Command
from bench.serving.cores import Cores
from bench.serving.job import Job, Lane, Outcome, Surface
from bench.serving.meter import Noise, Record, metered
from bench.serving.site import Site
from launcher.child import free_port
from tests.stack.stack import ROOT

LOAD_ENDS_WITHIN_S = 300.0


class LoadBroken(Exception):
    """The load generator has ended without an outcome; the text says how."""


@dataclass(frozen=True)
class Options:
    """What is asked for on the command line."""

    seconds: float = 60.0  # that a rate must be sustained
    peers: Sequence[str] = ()
    pairs: int = 3  # of turns of ours and the bare engine


@dataclass(frozen=True)
class Target:
    """A server that can be asked."""

    name: str
    surface: Surface
    port: int
    pids: Mapping[str, int]
    key: str = "none"
    model: str = "default"

    def lanes(self, count: int) -> Sequence[Lane]:
        """Where so many questions go."""
        return [Lane(self.key, str(number)) for number in range(count)]

    async def quiet(self) -> None:
        """Return when nothing of what was asked goes on."""


@dataclass(frozen=True)
class Ours(Target):
    """The product, each of whose questions goes into a chat of its own."""

    site: Site = field(kw_only=True)

    def lanes(self, count: int) -> Sequence[Lane]:
        """See `Target`."""
        return self.site.lanes(count)

    async def quiet(self) -> None:
        """See `Target`."""
        await self.site.quiet()


@dataclass
class Bench:
    """One run of the bench. Everything that it starts ends with its stack."""

    options: Options
    cores: Cores
    folder: Path
    stack: AsyncExitStack
    peers: Mapping[str, Target] = field(default_factory=dict)
    noise: list[Noise] = field(default_factory=list)  # by job
    _site: Site | None = None
    _closing: AsyncExitStack = field(default_factory=AsyncExitStack)
    _wishes: Mapping[str, str] | None = None
    _bare: Target | None = None

    def say(self, line: str) -> None:
        """To whoever watches."""
        print(f"  {line}", flush=True)

    @property
    def was_disturbed(self) -> bool:
        """Whether others were so much in the way of the last job that it says little."""
        return self.noise[-1].spoils

    async def site(self, wishes: Mapping[str, str]) -> Site:
        """The product with such an environment; one with another is closed first. Raises `StackBroken`."""
        if self._site is None or wishes != self._wishes:
            await self.close_site()
            self.say("starting the product")
            self._site = await self._closing.enter_async_context(site.opened(wishes, self.cores))
            self._wishes = wishes
        return self._site

    async def ours(self, wishes: Mapping[str, str]) -> Ours:
        """The product as a target."""
        found = await self.site(wishes)
        return Ours("ours", Surface.PALAVER, found.port, found.tested, site=found)

    async def close_site(self) -> None:
        """End the product, if there is one."""
        await self._closing.aclose()
        self._site = None

    async def bare(self) -> Target:
        """An application with nothing behind it, on the server's core: the parts alone."""
        if self._bare is None:
            self._bare = await self.bare_on(self.cores.server)
        return self._bare

    async def bare_on(self, core: int) -> Target:
        """The same, wherever: on the load's core it is the engine behind other servers."""
        port = free_port()
        command = [sys.executable, "-m", "bench.serving.bare", str(port)]
        name = f"bare-{port}"
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        pid = await self.serve(Command(name, command, port, core, environ))
        return Target("the parts alone", Surface.PALAVER, port, {"bare": pid})

    async def serve(self, command: Command) -> int:
        """Run a server until the bench ends; returns its process id. Raises `NotServing`."""
        return await self.stack.enter_async_context(beside.serving(command, self.folder))

    async def run(self, job: Job, tested: Mapping[str, int]) -> tuple[Outcome, Record]:
        """Have the load generator carry out a job, and meter the server under test. Raises `LoadBroken`."""
        async with metered(tested, self.cores) as record:
            outcome = await _generated(job)
        if outcome.samples:
            begin = min(sample.sent_at for sample in outcome.samples)
            self.noise.append(record.noise(begin, begin + outcome.seconds))
        return outcome, record


async def _generated(job: Job) -> Outcome:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.serving.load"),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(LOAD_ENDS_WITHIN_S + job.seconds):
            told, _ = await process.communicate(json.dumps(job.as_json()).encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise LoadBroken(f"the load generator ended with status {process.returncode}")
    return Outcome.of(json.loads(told))
