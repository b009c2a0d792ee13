"""Admissions with random ends, by processes that die: every bucket, count and ledger row is exact afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from random import Random
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.db import connection
from redis import Redis

from chat import accounting, burials, cancelling
from chat.models import Run, Status, User
from chatsite.settings import BASE_DIR
from scheduler.models import Model, Override, Tier
from tests.budgets import recounting
from tests.long_form import times

pytestmark = pytest.mark.django_db(transaction=True)

ADMISSIONS = times(100, long=10_000)
PROCESSES = 2
WITHIN_S = 120 + ADMISSIONS / 5
BUDGETS = [10_000_000] * 6 + [4_000] * 3
QUEUE_DEPTH = 8


@pytest.fixture
def tier(free: Tier) -> Tier:
    """A token an hour: what a bucket misses is what was charged."""
    numbers = {"concurrency": 6, "refill_tokens_per_hour": 1, "queue_depth": QUEUE_DEPTH}
    Tier.objects.filter(pk=free.pk).update(**numbers)
    free.refresh_from_db()
    return free


@pytest.fixture
def users(tier: Tier) -> list[User]:
    """Some who never meet their budget, and some who do soon."""
    users = [User.objects.create_user(f"user{n}", tier=tier) for n in range(len(BUDGETS))]
    until = users[0].date_joined + timedelta(days=1)
    for user, budget in zip(users, BUDGETS, strict=True):
        Override.objects.create(user=user, until=until, budget_tokens=budget)
    return users


@pytest.fixture
def _recounted() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(recounting.INSTALL)
    yield
    with connection.cursor() as cursor:
        cursor.execute(recounting.REMOVE)


@contextmanager
def acting(seeds: Iterator[int], model: Model) -> Iterator[Callable[[], int]]:
    """Processes that act; the function given starts new ones for those that died, and says how many that were."""
    url = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}").geturl()
    environment = {
        **os.environ,
        "DATABASE_URL": url,
        "DJANGO_SETTINGS_MODULE": "chatsite.settings",
        "LOG_LEVEL": "ERROR",
    }
    actors: list[subprocess.Popen[bytes]] = []

    def start() -> int:
        ended = [actor for actor in actors if actor.poll() is not None]
        assert all(actor.returncode == -signal.SIGKILL for actor in ended), "an actor broke: see its output"
        actors[:] = [actor for actor in actors if actor.returncode is None]
        while len(actors) < PROCESSES:
            command = [sys.executable, "-m", "tests.budgets.acting", str(next(seeds)), model.pk]
            actors.append(subprocess.Popen(command, env=environment, cwd=BASE_DIR))
        return len(ended)

    start()
    try:
        yield start
    finally:
        for actor in actors:
            actor.kill()
            actor.wait()


def bring_all_to_an_end() -> None:
    """What the product does with time: deadlines, dead workers, and the reaper's settling."""
    Run.objects.filter(status=Status.STREAMING).update(lease_until="2000-01-01T00:00:00Z")
    for run in Run.objects.live():
        if not burials.bury(run.pk):
            cancelling.expire(run)
    assert not Run.objects.live().exists()
    accounting.settle_left_over()


@pytest.mark.timeout(WITHIN_S + 120)
@pytest.mark.usefixtures("_recounted")
def test_whatever_happens_to_runs_and_processes_all_accounts_are_exact(
    users: list[User],
    model: Model,
    streams: Redis,
    monkeypatch: pytest.MonkeyPatch,
    figures: Callable[[str], None],
) -> None:
    seed = int(os.environ.get("ADMISSIONS_SEED", time.time_ns() % 1_000_000))
    dice, deaths, depth = Random(seed), 0, 0
    give_up_at = time.monotonic() + WITHIN_S
    with acting(iter(lambda: dice.getrandbits(32), None), model) as start_again:
        while admitted() < ADMISSIONS or not deaths:
            assert time.monotonic() < give_up_at, f"{admitted()} admissions within {WITHIN_S} s"
            depth = max(depth, Run.objects.filter(status=Status.QUEUED).count())
            time.sleep(0.05)
            deaths += start_again()
    left = len(accounting.buckets().reserved_before(timedelta(0)))
    monkeypatch.setattr(accounting, "GRACE", timedelta(0))
    monkeypatch.setattr(settings, "UNBORN_S", 0)
    bring_all_to_an_end()

    found = recounting.ends()
    ids = [user.pk for user in users]
    wrong = [
        *recounting.wrong_ends(found, model.cached_token_percent),
        *recounting.wrong_entries(found),
        *recounting.wrong_buckets(found, ids, streams),
        *recounting.left_reservations(ids, streams),
    ]
    figures(
        f"seed {seed}: {len(found)} runs ended, {sum(end.was_taken for end in found)} of them taken by a worker, "
        f"{sum(end.charged_tokens for end in found)} tokens charged, {deaths} processes died, {left} reservations were "
        f"out at the end, at most {depth} runs waited, {len(wrong)} accounts are wrong"
    )
    assert wrong == []
    assert depth <= QUEUE_DEPTH


def admitted() -> int:
    """Runs that were stored, those that are deleted by now included."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT (SELECT count(*) FROM recount_end) + count(*) FROM chat_run WHERE finished_at IS NULL")
        count: int = cursor.fetchone()[0]
        return count
