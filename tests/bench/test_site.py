"""The product that is measured: alone on its core, with a row that says where the time went, and gone afterwards."""

from __future__ import annotations

from uuid import UUID

import psutil
from redis.asyncio import Redis

from bench.serving import script
from bench.serving.cells.ttft import stages
from bench.serving.cores import Cores
from bench.serving.crowding import crowd_with_runs, fill_chats, give_chats
from bench.serving.job import Job, Surface
from bench.serving.load import carry_out
from bench.serving.meter import family, memory_mb
from bench.serving.site import Site, opened
from inference.streams import run_key

ASKED = 3
PATIENCE_S = 120  # its core is the other tests', too


async def test_the_product_is_measured_alone_on_its_core_and_gone_afterwards() -> None:
    cores = Cores.of_this_machine()
    async with opened(script.replies(), cores) as site:
        for pid in site.tested.values():
            assert {tuple(each.cpu_affinity()) for each in family(pid)} == {(cores.server,)}
            assert memory_mb(pid) > 0
        await _a_run_says_where_its_time_went(site)
        await _what_is_crowded_in_is_taken_for_the_products_own(site)
        pids = [each.pid for part in site.world.parts for each in family(part.pid)]

    assert [pid for pid in pids if psutil.pid_exists(pid)] == []


async def _a_run_says_where_its_time_went(site: Site) -> None:
    streams_url = site.world.streams_url
    outcome = await carry_out(
        Job(
            Surface.PALAVER,
            site.port,
            site.lanes(ASKED),
            ASKED,
            per_s=20,
            streams_url=streams_url,
            patience_s=PATIENCE_S,
        )
    )

    assert [sample.failure for sample in outcome.samples] == [""] * ASKED
    assert {sample.tokens for sample in outcome.samples} == {script.TOKENS}
    times = site.times([sample.run_id for sample in outcome.samples])
    for sample in outcome.samples:
        row = times[sample.run_id]
        assert sample.sent_at < row.created_at <= min(row.released_at, row.started_at)
        assert row.started_at < sample.first_at
        assert sample.posted_at < sample.first_at < sample.ended_at
        assert sample.stored_at
    figures = stages(outcome, times)
    assert all(figure.ours is not None for figure in figures)
    async with Redis.from_url(streams_url) as redis:
        assert await redis.exists(*(run_key(UUID(sample.run_id)) for sample in outcome.samples)) == ASKED


async def _what_is_crowded_in_is_taken_for_the_products_own(site: Site) -> None:
    [chat] = give_chats(site, site.keys[0], 1)
    fill_chats(site, [chat], 4)
    crowd_with_runs(site, 2)
    pages = [
        await carry_out(Job(Surface.PAGE, site.port, site.lanes(1), 1, content=path, patience_s=PATIENCE_S))
        for path in ("/api/chats", "/api/chats/{chat}/messages")
    ]

    assert [page.failures for page in pages] == [0, 0]
    await site.quiet()  # the two that waited were found, and answered
    assert site.sql("SELECT count(*) FROM chat_run WHERE status = 'done'") == [(ASKED + 2,)]
