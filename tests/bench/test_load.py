"""The load generator sends when it should, and counts from then; what fails is counted too."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from bench.serving import script
from bench.serving.beside import Command, NotServing, serving
from bench.serving.cores import Cores
from bench.serving.job import Job, Lane, Surface
from bench.serving.load import carry_out
from launcher import benching
from launcher.child import free_port
from tests.stack.stack import ROOT

REFUSAL = b"HTTP/1.1 503 Not now\r\nContent-Length: 2\r\n\r\n{}"
ANSWER = b"HTTP/1.1 202 Accepted\r\nContent-Length: 31\r\n\r\n" + b'{"run_id": "1", "stream": "/x"}'
TAKES_S = 0.05


@asynccontextmanager
async def bare(folder: Path) -> AsyncIterator[int]:
    port = free_port()
    command = [sys.executable, "-m", "bench.serving.bare", str(port)]
    core = min(os.sched_getaffinity(0))
    async with serving(Command("bare", command, port, core, {**os.environ, "PYTHONPATH": str(ROOT)}), folder):
        yield port


@asynccontextmanager
async def one_after_the_other(answer: bytes) -> AsyncIterator[int]:
    """A server that takes its time for each request, and serves one at a time."""
    turn = asyncio.Lock()
    ended: list[asyncio.Future[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            [length] = [int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length: ")]
            await reader.readexactly(length)
            async with turn:
                await asyncio.sleep(TAKES_S)
            writer.write(answer)

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        this: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ended.append(this)
        try:
            await serve(reader, writer)
        except asyncio.IncompleteReadError:
            writer.close()
            await writer.wait_closed()
        this.set_result(None)

    async with await asyncio.start_server(served, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        await asyncio.gather(*ended)


@pytest.mark.parametrize("surface", [Surface.PALAVER, Surface.OPENAI])
async def test_each_request_is_sent_at_its_time_and_read_to_its_end(surface: Surface, tmp_path: Path) -> None:
    async with bare(tmp_path) as port:
        outcome = await carry_out(Job(surface, port, [Lane("none", "1")], count=20, per_s=40))

    assert outcome.failures == 0, [sample.failure for sample in outcome.samples]
    assert {sample.tokens for sample in outcome.samples} == {script.TOKENS}
    for sample, following in pairwise(outcome.samples):
        assert following.due_at - sample.due_at == pytest.approx(1 / 40, abs=1e-6)
    for sample in outcome.samples:
        assert sample.due_at <= sample.sent_at <= sample.first_at < sample.ended_at
        assert sample.ttft_ms >= script.FIRST_TOKEN_MS
        assert sample.ended_at - sample.due_at >= (script.TOKENS - 1) / script.TOKENS_PER_S


async def test_lanes_wait_for_their_answers_and_stop_in_time(tmp_path: Path) -> None:
    async with bare(tmp_path) as port:
        job = Job(Surface.PALAVER, port, [Lane("none", "1")], count=7, at_once=3)
        by_count = await carry_out(job)
        by_time = await carry_out(replace(job, count=1_000_000, seconds=0.3, is_post_only=True))

    assert (len(by_count.samples), by_count.failures) == (7, 0)
    assert 0 < len(by_time.samples) < 1_000_000
    assert all(sample.posted_at and not sample.first_at for sample in by_time.samples)
    assert by_time.served_per_s > 0


async def test_who_waits_for_a_slow_server_is_late_from_when_the_request_was_due() -> None:
    count = 10
    async with one_after_the_other(ANSWER) as port:
        job = Job(Surface.PALAVER, port, [Lane("none", "1")], count, per_s=1000, is_post_only=True)
        outcome = await carry_out(job)

    assert outcome.failures == 0
    # The last is served behind nine others: a generator that had sent it only then would have seen none of that.
    assert max(sample.post_ms for sample in outcome.samples) >= 1000 * (count * TAKES_S - count / 1000)


async def test_a_refusal_and_a_closed_door_are_failures() -> None:
    async with one_after_the_other(REFUSAL) as port:
        job = Job(Surface.PALAVER, port, [Lane("none", "1")], 2)
        refused = await carry_out(job)
    nobody = await carry_out(replace(job, port=free_port()))

    assert [sample.status for sample in refused.samples] == [503, 503]
    assert refused.samples[0].failure.startswith("Refused 503")
    assert (refused.failures, nobody.failures) == (2, 2)
    assert nobody.served_per_s == 0


async def test_a_server_that_ends_at_once_is_told_with_its_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such model')"]
    with pytest.raises(NotServing, match="no such model"):
        async with serving(Command("broken", command, free_port(), min(os.sched_getaffinity(0)), {}), tmp_path):
            pass


@pytest.mark.parametrize(("option", "line"), [(["nonsense"], "WHAT=nonsense"), (["--peers", "nobody"], "PEERS=nobody")])
def test_what_there_is_not_gets_one_line(option: list[str], line: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "bench.serving", *option], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert ran.returncode == 64
    assert ran.stderr.startswith(f"palaver: there is no {line}. There are: ")
    assert len(ran.stderr.splitlines()) == 1


def test_make_hands_its_variables_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WHAT", "PEERS", "ARGS"):
        monkeypatch.delenv(name, raising=False)
    assert benching.arguments() == []

    monkeypatch.setenv("WHAT", "ttft submit")
    monkeypatch.setenv("PEERS", "litellm")
    monkeypatch.setenv("ARGS", "--seconds 20")
    assert benching.arguments() == ["ttft", "submit", "--peers", "litellm", "--seconds", "20"]


def test_the_server_and_the_load_have_a_core_each() -> None:
    cores = Cores.of_this_machine()

    assert cores.server != cores.load
