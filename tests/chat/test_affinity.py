"""A turn of a chat and the worker that has its prefix cached: what rows say, and what if that worker is away."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.conf import LazySettings
from redis import Redis

from chat import queueing
from chat.cancelling import cancel
from chat.models import Chat, Run, Status
from chat.queueing import newcomer
from chat.recovery import Reaper
from chat.streaming.connect import broker_client
from chat.streaming.hub import Live
from chat.streaming.positions import RoomPositions
from inference.queues import sticky_name
from inference.scripted_engine import Script
from scheduler.models import Model
from scheduler.room import holders_key, queue_name, sticky_key, workers_key
from scheduler.routing import Report, Warm
from scheduler.workers import Workers
from tests.acts import in_queue
from tests.chat.generating import working
from tests.metering import metered

pytestmark = pytest.mark.django_db(transaction=True)

NewRun = Callable[..., Run]
GPU = "gpu@test"


@pytest.fixture
def warm_run(new_run: NewRun, chat: Chat) -> Callable[[], Run]:
    """Makes queued runs, each in a chat of its own, whose prefix the worker has."""

    def make() -> Run:
        run = new_run(in_chat=Chat.objects.create(owner=chat.owner))
        Run.objects.filter(pk=run.pk).update(warm_worker=GPU, warm_tokens=1000)
        return Run.objects.select_related("chat").get(pk=run.pk)

    return make


@pytest.fixture
def cold_run(new_run: NewRun) -> Run:
    return new_run()


@pytest.fixture
def kept_run(warm_run: Callable[[], Run], broker: Redis, model: Model) -> Run:
    """Sent to its worker alone."""
    tell(broker, model)
    run = warm_run()
    queueing.admit(run)
    return run


def tell(broker: Redis, model: Model, free: int = 1, prefill_us: float = 500) -> None:
    Workers(broker, model.pk).tell(Report(GPU, free, 100, prefill_us))


def kept(broker: Redis, run: Run) -> int:
    """How many messages wait for the worker alone."""
    return broker.llen(sticky_name(queue_name(run.model_id, run.room_tier), GPU))


def decision(run: Run) -> str | None:
    route = Run.objects.get(pk=run.pk).route
    return route and route["decision"]


def test_the_row_says_where_a_run_went_and_by_which_numbers(
    warm_run: Callable[[], Run], broker: Redis, model: Model
) -> None:
    tell(broker, model)
    run = warm_run()

    queueing.admit(run)

    assert Run.objects.get(pk=run.pk).route == {"decision": "warm", "worker": GPU, "wait_ms": 0, "saving_ms": 500}
    assert Run.objects.get(pk=run.pk).released_at
    assert (kept(broker, run), in_queue(broker, run)) == (1, [])


def test_a_run_for_which_nobody_is_warm_has_no_route(new_run: NewRun, broker: Redis, model: Model) -> None:
    tell(broker, model)
    run = new_run()

    queueing.admit(run)

    assert Run.objects.get(pk=run.pk).route is None
    assert in_queue(broker, run) == [run.pk]


def test_with_affinity_off_nobody_is_warm(
    warm_run: Callable[[], Run], broker: Redis, model: Model, settings: LazySettings
) -> None:
    tell(broker, model)
    run = warm_run()
    assert newcomer(run).warm == Warm(GPU, 1000)
    settings.AFFINITY = False

    queueing.admit(run)

    assert Run.objects.get(pk=run.pk).route is None
    assert in_queue(broker, run) == [run.pk]


def test_a_warm_run_costs_no_more_round_trips_and_statements_than_another(
    warm_run: Callable[[], Run], new_run: NewRun, broker: Redis, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(broker, model)
    runs = [Run.objects.select_related("chat").get(pk=run.pk) for run in (new_run(), warm_run())]
    queueing.admit(warm_run())  # connections are made

    costs = []
    for run in runs:
        with metered(monkeypatch) as cost:
            queueing.admit(run)
        costs.append((cost.verbs, sorted(name for name in cost.commands if name.startswith("EVAL"))))

    assert costs[0] == costs[1] == (["UPDATE"], ["EVALSHA"])
    assert decision(runs[1]) == "warm"


def test_all_runs_of_a_release_are_marked_in_one_statement(
    warm_run: Callable[[], Run], cold_run: Run, broker: Redis, settings: LazySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DISPATCH_LOOKAHEAD = 0
    model = cold_run.model
    runs = [warm_run(), Run.objects.select_related("chat").get(pk=cold_run.pk), warm_run()]
    for run in runs:
        queueing.admit(run)
    tell(broker, model)
    settings.DISPATCH_LOOKAHEAD = 8

    with metered(monkeypatch) as costs:
        queueing.release(model.pk, "free")

    assert costs.verbs == ["UPDATE"]
    assert [decision(run) for run in runs] == ["warm", None, "warm"]


def test_the_reaper_gives_to_all_what_a_silent_worker_left(
    warm_run: Callable[[], Run], broker: Redis, model: Model
) -> None:
    tell(broker, model, prefill_us=1e6)
    run = warm_run()
    queueing.admit(run)
    Reaper(period_s=0.01).round()
    assert kept(broker, run) == 1

    broker.hset(workers_key(model.pk), GPU, "1 1 100 500")
    Reaper(period_s=0.01).round()

    assert (kept(broker, run), in_queue(broker, run)) == (0, [run.pk])
    assert Run.objects.get(pk=run.pk).route == {
        "decision": "late",
        "worker": GPU,
        "wait_ms": 0,
        "saving_ms": 1_000_000,
    }


def test_a_release_of_another_worker_gives_to_all_what_is_late(
    warm_run: Callable[[], Run], broker: Redis, model: Model
) -> None:
    tell(broker, model)
    run = warm_run()
    queueing.admit(run)
    broker.zadd(sticky_key(model.pk, "free"), {str(run.pk): 1})

    queueing.release(model.pk, "free", report=Report("other@test", 1))

    assert in_queue(broker, run) == [run.pk]
    assert decision(run) == "late"


def test_a_run_that_waits_for_its_worker_can_be_cancelled(kept_run: Run, broker: Redis, model: Model) -> None:
    assert cancel(kept_run).status == Status.CANCELLED

    assert kept(broker, kept_run) == 0
    assert not broker.exists(sticky_key(model.pk, "free"), holders_key(model.pk, "free"))


def test_the_reaper_does_not_send_again_what_waits_for_its_worker(
    warm_run: Callable[[], Run], broker: Redis, model: Model
) -> None:
    tell(broker, model, prefill_us=1e6)
    run = warm_run()
    queueing.admit(run)

    Reaper(period_s=0.01).round()

    assert (kept(broker, run), in_queue(broker, run)) == (1, [])


async def test_its_reader_hears_its_place(kept_run: Run, broker: Redis) -> None:
    broker.lpush(queue_name(kept_run.model_id, "free"), "another")
    async with broker_client() as client:
        places = await RoomPositions(client)([Live(kept_run.pk, kept_run.model_id, "free")])

    assert places[kept_run.pk].position == 1


async def test_a_worker_tells_of_itself_from_its_first_run_until_it_stops(
    cold_run: Run, broker: Redis, model: Model
) -> None:
    async with working(Script(text="Hi", slots=3)) as worker:
        assert not broker.hexists(workers_key(model.pk), GPU)
        await worker.attempts.run(cold_run.pk)
        await worker.until(lambda: has_told(broker, model, b"3"))

    at, *rest = (broker.hget(workers_key(model.pk), GPU) or b"").split()
    seconds, _ = broker.time()
    assert rest == [b"0", b"0", b"0"]
    assert int(at) <= (seconds - 9) * 1000


async def has_told(broker: Redis, model: Model, free: bytes) -> bool:
    """Whether the worker has told that so many of its slots are free."""
    fields = (broker.hget(workers_key(model.pk), GPU) or b"").split()
    return len(fields) == 4 and fields[1] == free


async def test_what_is_claimed_is_not_kept_any_more(kept_run: Run, broker: Redis, model: Model) -> None:
    assert broker.exists(sticky_key(model.pk, "free"))
    async with working(Script(text="Hi"), name=GPU) as worker:
        await worker.attempts.run(kept_run.pk)
        await worker.until(lambda: is_forgotten(broker, model))


async def is_forgotten(broker: Redis, model: Model) -> bool:
    return not broker.exists(sticky_key(model.pk, "free"), holders_key(model.pk, "free"))
