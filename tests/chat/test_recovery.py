"""The reaper's rounds, on real rows, rooms and streams."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import psycopg
import pytest
from django.conf import LazySettings
from django.db import connection, connections
from django.db.models.functions import Now
from redis import Redis

from chat import burials, last_words, queueing, recovery
from chat.emitted import Emitted
from chat.finishing import finish_run
from chat.models import Chat, Checkpoint, IdempotencyKey, Outcome, Run, RunTaken, Status, User
from chat.recovery import LOCK, Reaper
from inference.streams import Delta, Ended, EntryId, Event, Started, fields, run_key
from scheduler.dispatch import Dispatcher
from scheduler.models import Model, Tier
from scheduler.room import drain_key, queue_name, room_key
from tests.acts import in_queue, last_entry

pytestmark = pytest.mark.django_db(transaction=True)

NewRun = Callable[..., Run]


@pytest.fixture(autouse=True)
def _leases_are_judged_at_once(settings: LazySettings) -> None:
    settings.LEASE_S = 0  # the test's database may have started a moment ago


@pytest.fixture
def reaper() -> Reaper:
    return Reaper(period_s=0.01)


@pytest.fixture
def abandoned(new_run: NewRun) -> Run:
    """A run whose worker has gone silent."""
    return silenced(new_run(Status.STREAMING))


def silenced(run: Run) -> Run:
    Run.objects.filter(pk=run.pk).update(lease_until=Now() - timedelta(seconds=1))
    return run


def tell(streams: Redis, run: Run, *events: tuple[EntryId, Event]) -> None:
    for entry_id, event in events:
        streams.xadd(run_key(run.pk), cast(dict[Any, Any], fields(event)), id=str(entry_id))


def tell_hello(streams: Redis, run: Run) -> None:
    tell(streams, run, (EntryId(1, 0), Started(1, "m")), (EntryId(1, 1), Delta("Hello", 0, (7, 8))))


def test_a_run_whose_worker_went_silent_is_sent_again_once(reaper: Reaper, abandoned: Run, broker: Redis) -> None:
    assert reaper.round()
    assert reaper.round()

    assert in_queue(broker, abandoned) == [abandoned.pk]
    assert Run.objects.get(pk=abandoned.pk).attempt == 1  # whoever claims it counts


def test_a_run_that_a_worker_is_just_taking_is_not_sent_again(reaper: Reaper, new_run: NewRun, broker: Redis) -> None:
    run = new_run()

    def claim() -> None:
        Run.objects.claim(run.pk, "gpu@test", timedelta(minutes=1))
        connections.close_all()

    taking = threading.Timer(queueing.TAKING_S / 5, claim)
    taking.start()
    reaper.round()
    taking.join()

    assert in_queue(broker, run) == []


def test_a_run_that_is_held_is_left_alone(reaper: Reaper, new_run: NewRun, broker: Redis) -> None:
    run = new_run(Status.STREAMING)

    reaper.round()

    assert in_queue(broker, run) == []


def test_leases_that_ran_out_while_the_database_was_away_are_not_judged(
    reaper: Reaper, abandoned: Run, broker: Redis, settings: LazySettings
) -> None:
    settings.LEASE_S = 10**9  # longer ago than this database started

    reaper.round()

    assert in_queue(broker, abandoned) == []


def test_a_queued_run_that_the_broker_never_heard_of_is_sent(reaper: Reaper, new_run: NewRun, broker: Redis) -> None:
    run = new_run()

    reaper.round()

    assert in_queue(broker, run) == [run.pk]
    assert Run.objects.get(pk=run.pk).released_at


def test_a_message_that_the_broker_lost_is_sent_again(reaper: Reaper, new_run: NewRun, broker: Redis) -> None:
    run = new_run()
    queueing.admit(run)
    broker.delete(queue_name(run.model_id, run.tier_id))

    reaper.round()

    assert in_queue(broker, run) == [run.pk]


@pytest.fixture
def five(new_run: NewRun, chat: Chat, settings: LazySettings, monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Runs that wait, of which a round looks at two."""
    settings.DISPATCH_LOOKAHEAD = 10
    monkeypatch.setattr(recovery, "LOOK", 2)
    return [new_run(in_chat=Chat.objects.create(owner=chat.owner)) for _ in range(5)]


def test_a_round_looks_at_a_part_of_those_that_wait_and_all_have_their_turn(
    reaper: Reaper, five: list[Run], broker: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run in five[:4]:
        queueing.admit(run)
    looked_at: list[list[UUID]] = []
    missing = Dispatcher.missing

    def noting(self: Dispatcher, run_ids: Sequence[UUID], model: str, tier: str) -> list[UUID]:
        looked_at.append([*run_ids])
        return missing(self, run_ids, model, tier)

    monkeypatch.setattr(Dispatcher, "missing", noting)
    for _ in range(2):
        reaper.round()
    assert looked_at == [[run.pk for run in part] for part in (five[:2], five[2:4])]

    reaper.round()
    assert in_queue(broker, five[4]) == [run.pk for run in five]


def test_where_all_were_lost_one_round_finds_them(reaper: Reaper, five: list[Run], broker: Redis) -> None:
    reaper.round()

    assert in_queue(broker, five[0]) == [run.pk for run in five]


def test_who_waits_in_room_or_queue_keeps_his_place(
    reaper: Reaper, new_run: NewRun, chat: Chat, broker: Redis, settings: LazySettings
) -> None:
    settings.DISPATCH_LOOKAHEAD = 1
    runs = [new_run(in_chat=Chat.objects.create(owner=chat.owner)) for _ in range(3)]
    for run in runs:
        queueing.admit(run)

    reaper.round()

    assert in_queue(broker, runs[0]) == [runs[0].pk]
    assert broker.zrange(room_key(runs[0].model_id, "free"), 0, -1) == [str(run.pk).encode() for run in runs[1:]]


def test_who_was_never_let_in_stands_where_others_of_that_age_do(
    reaper: Reaper, new_run: NewRun, free: Tier, broker: Redis, settings: LazySettings
) -> None:
    settings.DISPATCH_LOOKAHEAD = 1
    owners = [User.objects.create_user(f"user-{n}", tier=free) for n in range(4)]
    runs = [new_run(in_chat=Chat.objects.create(owner=owner)) for owner in owners]
    for run in (runs[0], runs[1], runs[3]):
        queueing.admit(run)

    reaper.round()

    assert broker.zrange(room_key(runs[0].model_id, "free"), 0, -1) == [str(run.pk).encode() for run in runs[1:]]


def test_a_lost_message_is_sent_again_before_its_users_later_runs(
    reaper: Reaper, new_run: NewRun, chat: Chat, broker: Redis, settings: LazySettings
) -> None:
    settings.DISPATCH_LOOKAHEAD = 1
    runs = [new_run(in_chat=Chat.objects.create(owner=chat.owner)) for _ in range(3)]
    for run in runs:
        queueing.admit(run)
    broker.delete(queue_name(runs[0].model_id, "free"))

    reaper.round()

    assert in_queue(broker, runs[0]) == [runs[0].pk]
    assert broker.zrange(room_key(runs[0].model_id, "free"), 0, -1) == [str(run.pk).encode() for run in runs[1:]]


def test_a_room_whose_releasers_died_is_released(
    reaper: Reaper, new_run: NewRun, chat: Chat, broker: Redis, settings: LazySettings
) -> None:
    settings.DISPATCH_LOOKAHEAD = 1
    first, second = (new_run(in_chat=Chat.objects.create(owner=chat.owner)) for _ in range(2))
    for run in (first, second):
        queueing.admit(run)
    broker.delete(queue_name(first.model_id, "free"))
    Run.objects.claim(first.pk, "dead", timedelta(minutes=1))  # it took the message, and released nothing

    reaper.round()

    assert in_queue(broker, second) == [second.pk]


def test_a_silent_run_that_somebody_cancelled_ends_with_what_was_told(
    reaper: Reaper, abandoned: Run, streams: Redis, broker: Redis
) -> None:
    tell_hello(streams, abandoned)
    Run.objects.request_cancel(abandoned.pk)

    reaper.round()

    row = Run.objects.select_related("answer").get(pk=abandoned.pk)
    assert (row.status, row.attempt, row.resumed_at) == (Status.CANCELLED, 2, {"2": 5})
    assert row.answer is not None
    assert (row.answer.content, row.output_tokens) == ("Hello", 2)
    last = last_entry(streams, row)
    assert last.id == EntryId.terminal(2)
    assert isinstance(last.event, Ended)
    assert (last.event.status, last.event.data["chars"]) == ("cancelled", 5)
    assert in_queue(broker, abandoned) == []
    # Nobody but the reaper can tell the room.
    assert float(broker.hget(drain_key(row.model_id), f"charge:{row.tier_id}") or 0) == row.charged_tokens > 0


@pytest.mark.parametrize("counts", [{"attempt": 3}, {"attempt": 8, "hand_backs": 5}])
def test_a_run_that_kept_killing_workers_fails(
    reaper: Reaper, abandoned: Run, streams: Redis, settings: LazySettings, counts: dict[str, int]
) -> None:
    settings.MAX_ATTEMPTS = 3
    Run.objects.filter(pk=abandoned.pk).update(**counts)
    with pytest.raises(RunTaken):  # by a worker whose message came before the reaper's round
        Run.objects.claim(abandoned.pk, "worker", timedelta(minutes=1))
    tell_hello(streams, abandoned)

    reaper.round()

    row = Run.objects.select_related("answer").get(pk=abandoned.pk)
    assert row.answer is not None
    assert (row.status, row.error_code, row.answer.content) == (Status.FAILED, "worker_lost", "Hello")
    assert cast(Ended, last_entry(streams, row).event).data["retryable"] is True


@pytest.mark.parametrize("counts", [{"attempt": 2}, {"attempt": 7, "hand_backs": 5}])
def test_a_run_that_was_handed_back_may_be_tried_as_often_again(
    reaper: Reaper, abandoned: Run, settings: LazySettings, counts: dict[str, int]
) -> None:
    settings.MAX_ATTEMPTS = 3
    Run.objects.filter(pk=abandoned.pk).update(**counts)

    reaper.round()

    assert Run.objects.get(pk=abandoned.pk).status == Status.STREAMING
    assert Run.objects.claim(abandoned.pk, "worker", timedelta(0)).attempt == counts["attempt"] + 1


def test_runs_that_met_several_deaths_come_back_each_at_its_time(new_run: NewRun, chat: Chat) -> None:
    runs = [new_run(Status.STREAMING, in_chat=Chat.objects.create(owner=chat.owner)) for _ in range(24)]
    Run.objects.update(attempt=2, lease_until=Now())

    def claimed(silent_for: timedelta) -> int:
        """How many may be had after that time; their leases are an hour."""
        Run.objects.update(attempt=2, lease_until=Now() - silent_for)
        return sum(map(may_be_had, runs))

    assert claimed(timedelta(0)) == 0
    assert 0 < claimed(timedelta(minutes=90)) < len(runs)
    assert claimed(timedelta(hours=3)) == len(runs)


def may_be_had(run: Run) -> bool:
    try:
        return bool(Run.objects.claim(run.pk, "worker", timedelta(hours=1)))
    except RunTaken:
        return False


def test_a_run_that_cannot_be_ended_keeps_no_other_from_it(
    reaper: Reaper, new_run: NewRun, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [silenced(new_run(Status.STREAMING, in_chat=Chat.objects.create(owner=chat.owner))) for _ in range(3)]
    for run in runs:
        Run.objects.request_cancel(run.pk)

    def break_on_one(run: Run, *args: Any) -> bool:
        if run.pk == runs[1].pk:
            raise ZeroDivisionError
        return finish_run(run, *args)

    monkeypatch.setattr(burials, "finish_run", break_on_one)
    reaper.round()

    statuses = [Run.objects.get(pk=run.pk).status for run in runs]
    assert statuses == [Status.CANCELLED, Status.STREAMING, Status.CANCELLED]


def test_a_run_ends_though_its_models_files_are_gone(reaper: Reaper, abandoned: Run, streams: Redis) -> None:
    tell_hello(streams, abandoned)
    Run.objects.request_cancel(abandoned.pk)
    Model.objects.update(source="/nowhere")

    reaper.round()

    row = Run.objects.select_related("answer").get(pk=abandoned.pk)
    assert row.answer is not None
    assert (row.status, row.answer.content, row.answer.token_count) == (Status.CANCELLED, "Hello", 2)


def test_a_run_that_is_taken_over_twice_has_the_same_text(abandoned: Run, streams: Redis) -> None:
    tell_hello(streams, abandoned)
    Run.objects.filter(pk=abandoned.pk).update(attempt=2)
    run = Run.objects.get(pk=abandoned.pk)

    # As when the reply is lost, or the database goes away behind it.
    assert last_words.take_over(run) == last_words.take_over(run) == Emitted("Hello", (7, 8), 1)


def test_with_the_stream_lost_it_ends_with_what_was_put_by(reaper: Reaper, abandoned: Run) -> None:
    Checkpoint.objects.create(run=abandoned, attempt=1, offset=0, text="Hello", token_ids=[7, 8])
    Run.objects.request_cancel(abandoned.pk)

    reaper.round()

    row = Run.objects.select_related("answer").get(pk=abandoned.pk)
    assert row.answer is not None
    assert (row.answer.content, row.output_tokens, row.resumed_at) == ("Hello", 2, {"2": 5})
    assert not Checkpoint.objects.exists()


def ended(new_run: NewRun, seconds_ago: float) -> Run:
    run = new_run(Status.DONE, answer="Hello")
    Run.objects.filter(pk=run.pk).update(finished_at=Now() - timedelta(seconds=seconds_ago))
    return Run.objects.get(pk=run.pk)


def test_an_end_that_its_worker_could_not_tell_is_told(reaper: Reaper, new_run: NewRun, streams: Redis) -> None:
    run = ended(new_run, seconds_ago=3)
    tell_hello(streams, run)

    reaper.round()
    reaper.round()

    entries = streams.xlen(run_key(run.pk))
    last = last_entry(streams, run)
    assert (entries, last.id) == (3, EntryId.terminal(1))
    assert isinstance(last.event, Ended)
    assert (last.event.status, last.event.data["message_id"]) == ("done", str(run.answer_id))
    assert streams.ttl(run_key(run.pk)) > 0


def test_an_end_of_a_moment_ago_is_its_workers_to_tell(reaper: Reaper, new_run: NewRun, streams: Redis) -> None:
    run = ended(new_run, seconds_ago=0)
    tell_hello(streams, run)

    reaper.round()

    assert streams.xlen(run_key(run.pk)) == 2


def test_a_stream_that_is_gone_stays_so(reaper: Reaper, new_run: NewRun, streams: Redis) -> None:
    run = ended(new_run, seconds_ago=3)

    reaper.round()

    assert not streams.exists(run_key(run.pk))


def test_an_end_is_told_once_the_streams_are_back(
    reaper: Reaper, new_run: NewRun, streams: Redis, settings: LazySettings
) -> None:
    run = ended(new_run, seconds_ago=3)
    tell_hello(streams, run)
    there, settings.STREAMS_URL = settings.STREAMS_URL, "redis://127.0.0.1:1/0"
    reaper.round()
    settings.STREAMS_URL = there
    Run.objects.filter(pk=run.pk).update(finished_at=Now() - timedelta(minutes=1))

    reaper.round()

    assert last_entry(streams, run).id == EntryId.terminal(1)


def test_an_end_whose_telling_failed_is_told_by_a_later_round(
    reaper: Reaper, new_run: NewRun, streams: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ended(new_run, seconds_ago=60)
    tell_hello(streams, run)
    with monkeypatch.context() as patched:
        patched.setattr(last_words, "tell_end", lambda *_: None)
        reaper.round()

    reaper.round()

    assert last_entry(streams, run).id == EntryId.terminal(1)


def test_checkpoints_live_as_long_as_their_run(reaper: Reaper, new_run: NewRun, chat: Chat) -> None:
    live = new_run(Status.STREAMING)
    over = new_run(Status.DONE, in_chat=Chat.objects.create(owner=chat.owner))
    for run in (live, over):
        Checkpoint.objects.create(run=run, attempt=1, offset=0, text="Hello", token_ids=[7])

    reaper.round()

    assert [kept.run_id for kept in Checkpoint.objects.all()] == [live.pk]


def test_idempotency_keys_are_kept_for_a_day(reaper: Reaper, alice: User) -> None:
    fresh, old = (IdempotencyKey.objects.create(user=alice, key=key, fingerprint="") for key in ("fresh", "old"))
    IdempotencyKey.objects.filter(pk=old.pk).update(created_at=Now() - timedelta(hours=25))

    reaper.round()

    assert [kept.pk for kept in IdempotencyKey.objects.all()] == [fresh.pk]


def test_a_broker_that_is_away_keeps_nothing_from_ending(
    reaper: Reaper, abandoned: Run, settings: LazySettings
) -> None:
    Run.objects.request_cancel(abandoned.pk)
    settings.BROKER_URL = "redis://127.0.0.1:1/0"

    reaper.round()

    assert Run.objects.get(pk=abandoned.pk).status == Status.CANCELLED


def test_two_reapers_take_turns(reaper: Reaper) -> None:
    with psycopg.connect(**connection.get_connection_params() | {"cursor_factory": None}, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(%s)", [LOCK])
        assert not reaper.round()
        other.execute("SELECT pg_advisory_unlock(%s)", [LOCK])
        assert reaper.round()
        assert reaper.round()


def test_a_round_leaves_its_connection_as_it_was(reaper: Reaper) -> None:
    reaper.round()

    with connection.cursor() as cursor:
        cursor.execute("SHOW idle_session_timeout")
        assert cursor.fetchone() == ("0",)
        cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")
        assert cursor.fetchone() == (0,)


def test_an_outcome_keeps_the_first_token_of_an_earlier_attempt(new_run: NewRun) -> None:
    run = new_run(Status.STREAMING)
    Run.objects.filter(pk=run.pk).update(first_token_at=Now() - timedelta(minutes=1))
    first = Run.objects.get(pk=run.pk).first_token_at

    assert run.finish(1, Outcome(Status.FAILED, first_token_age=timedelta(seconds=1)), None)

    assert Run.objects.get(pk=run.pk).first_token_at == first
