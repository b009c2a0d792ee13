"""What a question reserves, what its run is charged, and who is refused: nothing is lost and nothing counted twice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest
from django.conf import LazySettings
from django.db.models.functions import Now
from django.utils import timezone
from redis import Redis
from uuid6 import uuid7

from chat import accounting, outcomes, queueing, recovery, submission
from chat.draft import Counts
from chat.finishing import finish_run
from chat.models import Chat, Checkpoint, Message, Run, RunQuerySet, Status, User
from chat.recovery import Reaper
from chatsite.database.prepared import insert
from inference.scripted_engine import Script
from inference.streams import Ended
from inference.tokens import Tokenizer, Turn
from scheduler import prices
from scheduler.admission import Waiting
from scheduler.budgets import Reservation, TokenBuckets
from scheduler.models import LedgerEntry, Model, Override, Tier
from scheduler.room import drain_key
from tests.acts import at_once, bearing, code_of, everything_stored, in_queue, last_entry
from tests.chat.generating import working
from tests.conftest import OUTPUT_CAP

if TYPE_CHECKING:
    from django.test.client import _MonkeyPatchedWSGIResponse as Answer

pytestmark = pytest.mark.django_db(transaction=True)

NewRun = Callable[..., Run]
BUDGET = 1000


@pytest.fixture(autouse=True)
def _a_token_an_hour(free: Tier, pro: Tier) -> None:
    for tier in (free, pro):
        tier.budget_tokens, tier.refill_tokens_per_hour = BUDGET, 1
        tier.save()


def ask(user: User, chat: Chat | None = None, content: str = "Hi", **more: object) -> Answer:
    chat = chat or Chat.objects.create(owner=user)
    body = {"content": content, **more}
    return bearing(user).post(f"/api/chats/{chat.pk}/messages", body, content_type="application/json")


def asked(user: User, chat: Chat | None = None, content: str = "Hi", **more: object) -> Run:
    answer = ask(user, chat, content, **more)
    assert answer.status_code == 202, answer.content
    return Run.objects.select_related("chat__owner", "model", "tier").get(pk=answer.json()["run_id"])


def left(user: User) -> int:
    """Tokens in the user's budget."""
    return accounting.buckets().level(user.pk, user.limits).tokens


def held(user: User) -> set[UUID]:
    """Runs for which something of the user's is reserved."""
    everything = accounting.buckets().reserved_before(timedelta(seconds=-60))
    return {reservation.run_id for reservation in everything if reservation.user_id == user.pk}


def input_tokens(model: Model) -> int:
    """Of a first question, as `ask` asks it."""
    return len(Tokenizer.load(model.source).encode_chat([Turn("user", "Hi")]))


def limit(user: User, **numbers: int) -> None:
    Override.objects.update_or_create(user=user, defaults={"until": timezone.now() + timedelta(hours=1), **numbers})


@pytest.mark.usefixtures("model")
def test_a_question_reserves_its_input_and_the_longest_answer(alice: User) -> None:
    run = asked(alice)

    assert left(alice) == BUDGET - run.input_tokens - OUTPUT_CAP
    assert run.pk in held(alice)


@pytest.mark.usefixtures("model")
def test_a_shorter_wish_reserves_less(alice: User) -> None:
    run = asked(alice, max_output_tokens=5)

    assert left(alice) == BUDGET - run.input_tokens - 5


def test_caps_that_conflict_reserve_what_the_answer_can_really_take(alice: User, model: Model) -> None:
    tokens = input_tokens(model)
    limit(alice, concurrency=10)
    Model.objects.update(context_window=tokens + 30)
    Tier.objects.update(max_output_tokens=40)

    assert asked(alice, max_output_tokens=50).max_output_tokens == 30
    assert left(alice) == BUDGET - tokens - 30
    Tier.objects.update(max_output_tokens=25)
    assert asked(alice, max_output_tokens=50).max_output_tokens == 25
    carol = User.objects.create_user("carol", tier=alice.tier)
    limit(carol, budget_tokens=tokens + 20)
    assert asked(carol, max_output_tokens=50).max_output_tokens == 20
    assert left(User.objects.get(pk=carol.pk)) == 0


def test_of_fifty_at_once_with_budget_for_one_one_is_admitted(alice: User, model: Model) -> None:
    limit(alice, budget_tokens=input_tokens(model) + OUTPUT_CAP + 10, concurrency=100)
    chats = [Chat.objects.create(owner=alice) for _ in range(50)]

    statuses = at_once([lambda chat=chat: ask(alice, chat).status_code for chat in chats])  # type: ignore[misc]

    assert statuses == [202] + [429] * 49
    [run] = Run.objects.all()
    assert Message.objects.count() == 1
    assert left(User.objects.get(pk=alice.pk)) == 10
    assert held(alice) == {run.pk}


def test_who_has_too_little_left_is_told_when_there_will_be_enough(alice: User, model: Model) -> None:
    cost = input_tokens(model) + OUTPUT_CAP
    limit(alice, budget_tokens=2 * cost - 1, refill_tokens_per_hour=60)
    asked(alice)

    answer = ask(alice)

    assert (answer.status_code, code_of(answer)) == (429, "budget_exhausted")
    assert 0 < int(answer.headers["Retry-After"]) <= 60
    assert answer.json()["cost_tokens"] == cost


@pytest.mark.usefixtures("model")
def test_a_budget_that_takes_longer_to_fill_than_there_are_dates_is_told_all_the_same(alice: User) -> None:
    limit(alice, budget_tokens=2_000_000_000, max_output_tokens=2_000_000_000)
    Model.objects.update(context_window=2_000_000_000, max_output_tokens=2_000_000_000)
    asked(alice)

    answer, usage = ask(alice), bearing(alice).get("/api/usage")

    assert (answer.status_code, code_of(answer)) == (429, "budget_exhausted")
    assert (usage.status_code, usage.json()["budget"]["left_tokens"]) == (200, 0)


@pytest.mark.usefixtures("model")
def test_a_prompt_that_no_budget_holds_is_not_told_to_wait(alice: User) -> None:
    limit(alice, budget_tokens=5)
    chat = Chat.objects.create(owner=alice)
    before = everything_stored()

    answer = ask(alice, chat)

    assert (answer.status_code, code_of(answer)) == (400, "prompt_exceeds_budget")
    assert "Retry-After" not in answer.headers
    assert (answer.json()["budget_tokens"], answer.json()["input_tokens"] >= 5) == (5, True)
    assert {**everything_stored(), "ApiKey": []} == {**before, "ApiKey": []}
    assert held(alice) == set()


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("fails", [Message, Run])
def test_what_fails_behind_the_reserve_gives_it_back(
    alice: User, monkeypatch: pytest.MonkeyPatch, fails: type[Message | Run]
) -> None:
    def broken(row: Message | Run) -> None:
        if isinstance(row, fails):
            raise RuntimeError  # noqa: TRY004  # a bug's
        insert(row)

    client = bearing(alice)
    client.raise_request_exception = False
    chat = Chat.objects.create(owner=alice)
    monkeypatch.setattr(submission, "insert", broken)

    assert client.post(f"/api/chats/{chat.pk}/messages", {"content": "Hi"}, "application/json").status_code == 500

    assert (left(alice), held(alice)) == (BUDGET, set())


@pytest.mark.usefixtures("model")
def test_refused_at_the_last_gate_a_question_leaves_no_trace(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill_first(*_: object) -> None:
        monkeypatch.setattr(Waiting, "places_in_tier", lambda *_: 0)

    monkeypatch.setattr(RunQuerySet, "hold_queue", fill_first)
    chat = Chat.objects.create(owner=alice)
    Tier.objects.update(queue_depth=1)
    before = everything_stored()

    answer = ask(alice, chat)

    assert (answer.status_code, code_of(answer)) == (503, "queue_full")
    assert {**everything_stored(), "ApiKey": []} == {**before, "ApiKey": []}
    assert (left(alice), held(alice)) == (BUDGET, set())


async def test_at_its_end_a_run_is_charged_what_it_took(alice: User, model: Model) -> None:
    async with working(Script(text="Hello", tokens_per_s=1000)) as worker:
        run = await worker.ask_rows(lambda: asked(alice))
        await worker.attempts.run(run.pk)
        row, entries = await worker.row(run), await worker.entries(run)
        budget, reserved = await worker.ask_rows(lambda: (left(alice), held(alice)))
        [entry] = await worker.ask_rows(lambda: list(LedgerEntry.objects.values()))

    charge = run.input_tokens + row.output_tokens
    assert (row.charged_tokens, budget, reserved) == (charge, BUDGET - charge, set())
    event = entries[-1].event
    assert isinstance(event, Ended)
    assert event.data["usage"]["charged_tokens"] == charge
    assert row.finished_at is not None
    assert entry == {
        "id": entry["id"],
        "user_id": alice.pk,
        "day": row.finished_at.date(),
        "model_id": model.pk,
        "runs": 1,
        "input_tokens": run.input_tokens,
        "cached_tokens": 0,
        "output_tokens": row.output_tokens,
        "charged_tokens": charge,
    }


def test_a_second_run_of_a_day_is_added_to_the_first(alice: User, model: Model) -> None:
    for cached in (0, 2):
        run = asked(alice)
        claim = Run.objects.claim(run.pk, "worker", timedelta(minutes=1))
        outcome = outcomes.cancelled(run, Counts(output_tokens=5, cached_tokens=cached))
        assert finish_run(run, claim.attempt, outcome, "", uuid7())
        assert finish_run(run, claim.attempt, outcome, "", uuid7())  # as after a reply that was lost

    [entry] = LedgerEntry.objects.all()
    assert (entry.runs, entry.cached_tokens, entry.output_tokens) == (2, 2, 10)
    assert entry.charged_tokens == 2 * (input_tokens(model) + 5) - 1  # two tokens for a quarter each, rounded up


@pytest.mark.parametrize(("tokens", "is_charged"), [(0, False), (1, True)])
def test_a_run_that_fails_before_its_first_word_costs_nothing(
    alice: User, model: Model, tokens: int, is_charged: bool
) -> None:
    run = asked(alice)
    claim = Run.objects.claim(run.pk, "worker", timedelta(minutes=1))
    assert finish_run(run, claim.attempt, outcomes.failed(run, Counts(tokens), "generation_failed"), "", uuid7())

    assert run.charged_tokens == (run.input_tokens + tokens if is_charged else 0)
    assert LedgerEntry.objects.get().charged_tokens == run.charged_tokens


@pytest.mark.parametrize(("cached", "percent", "charge"), [(0, 25, 110), (100, 25, 35), (1, 25, 110), (99, 0, 11)])
def test_a_cached_token_costs_its_percentage(cached: int, percent: int, charge: int) -> None:
    assert prices.charge(100, cached, 10, percent) == charge


def test_a_run_that_is_cancelled_before_a_worker_took_it_costs_nothing(alice: User, model: Model) -> None:
    run = asked(alice)

    bearing(alice).post(f"/api/runs/{run.pk}/cancel")

    assert (left(alice), held(alice)) == (BUDGET, set())
    assert not LedgerEntry.objects.exists()


def test_a_run_that_waits_past_its_deadline_fails_and_costs_nothing(
    alice: User, model: Model, broker: Redis, streams: Redis
) -> None:
    late, in_time = asked(alice), asked(alice)
    Run.objects.filter(pk=late.pk).update(created_at=Now() - timedelta(seconds=late.tier.queue_deadline_s))

    Reaper(0.01).round()

    late.refresh_from_db()
    assert (late.status, late.error_code, late.attempt) == (Status.FAILED, "queue_timeout", 0)
    assert held(alice) == {in_time.pk}
    assert left(alice) == BUDGET - in_time.input_tokens - OUTPUT_CAP
    assert in_queue(broker, late) == [in_time.pk]
    event = last_entry(streams, late).event
    assert isinstance(event, Ended)
    assert (event.status, event.data["code"], event.data["retryable"]) == ("failed", "queue_timeout", True)
    assert not LedgerEntry.objects.exists()


def test_a_round_without_time_for_all_who_are_late_ends_the_oldest(
    alice: User, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "EXPIRING_S", 0.0)
    late = [asked(alice), asked(alice)]
    Run.objects.update(created_at=Now() - timedelta(days=1))

    Reaper(0.01).round()
    assert set(Run.objects.live()) == {late[1]}

    Reaper(0.01).round()
    assert not Run.objects.live()


@pytest.mark.parametrize("bound", ["tier", "model"])
def test_nobody_is_told_to_come_back_later_than_those_who_wait_must_have_left(
    alice: User, pro: Tier, model: Model, broker: Redis, bound: str
) -> None:
    (Tier if bound == "tier" else Model).objects.update(queue_depth=1)
    Tier.objects.update(queue_deadline_s=90)
    Tier.objects.filter(pk="free").update(queue_deadline_s=60)
    asked(alice)
    seconds, _ = broker.time()
    silent: dict[Any, Any] = {"runs": 10, "busy_ms": 60_000, "squares": 360_000_000, "since": (seconds - 86400) * 1000}
    broker.hset(drain_key(model.slug), mapping=silent)

    refused = ask(alice)

    assert code_of(refused) == "queue_full"
    assert refused.headers["Retry-After"] == {"tier": "60", "model": "90"}[bound]


def test_deleting_a_chat_charges_what_its_live_run_had_put_by(alice: User, model: Model, streams: Redis) -> None:
    run = asked(alice)
    Run.objects.claim(run.pk, "worker", timedelta(minutes=1))
    Checkpoint.objects.create(run=run, attempt=1, offset=0, text="Hello", token_ids=[7, 8, 9])

    assert bearing(alice).delete(f"/api/chats/{run.chat_id}").status_code == 204

    charge = run.input_tokens + 3
    assert (left(alice), held(alice)) == (BUDGET - charge, set())
    event = last_entry(streams, run).event
    assert isinstance(event, Ended)
    assert (event.data["usage"]["output_tokens"], event.data["usage"]["charged_tokens"]) == (3, charge)
    assert event.data["refunded_tokens"] == OUTPUT_CAP - 3
    [entry] = LedgerEntry.objects.all()
    assert (entry.user, entry.model, entry.runs) == (alice, model, 1)
    assert (entry.input_tokens, entry.output_tokens, entry.charged_tokens) == (run.input_tokens, 3, charge)


def test_what_nobody_settled_the_reaper_does_once(alice: User, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounting, "GRACE", timedelta(0))
    limit(alice, concurrency=10)
    ended, deleted, live = (asked(alice) for _ in range(3))
    claim = Run.objects.claim(ended.pk, "worker", timedelta(minutes=1))
    assert finish_run(ended, claim.attempt, outcomes.worker_lost(ended, Counts(output_tokens=5)), "", uuid7())
    with monkeypatch.context() as dying:
        dying.setattr(TokenBuckets, "settle", lambda *_: False)
        bearing(alice).delete(f"/api/chats/{deleted.chat_id}")
    assert held(alice) == {ended.pk, deleted.pk, live.pk}

    for _ in range(2):
        Reaper(0.01).round()

    assert held(alice) == {live.pk}
    assert left(alice) == BUDGET - (ended.input_tokens + 5) - (live.input_tokens + OUTPUT_CAP)


def test_what_was_reserved_for_no_run_comes_back(
    alice: User, settings: LazySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    unborn = Reservation(alice.pk, UUID(int=alice.pk.int + 64))
    accounting.buckets().reserve(unborn, 100, alice.limits)
    monkeypatch.setattr(accounting, "GRACE", timedelta(0))
    Reaper(0.01).round()
    assert held(alice) == {unborn.run_id}  # its transaction may still be under way

    settings.UNBORN_S = 0
    Reaper(0.01).round()

    assert (left(alice), held(alice)) == (BUDGET, set())


def test_the_lower_tiers_are_refused_first_as_the_queue_fills(
    alice: User, free: Tier, pro: Tier, model: Model, settings: LazySettings
) -> None:
    Model.objects.update(queue_depth=4)
    Tier.objects.update(concurrency=100)
    Tier.objects.filter(pk="free").update(shed_at_percent=50)
    paying = User.objects.create_user("carol", tier=pro)

    assert [ask(alice).status_code for _ in range(3)] == [202, 202, 503]
    assert [ask(paying).status_code for _ in range(3)] == [202, 202, 503]
    refused = ask(paying)

    assert code_of(refused) == "queue_full"
    assert int(refused.headers["Retry-After"]) >= 1
    assert Run.objects.count() == 4


def test_who_would_miss_the_deadline_is_told_so_at_once(alice: User, pro: Tier, model: Model, broker: Redis) -> None:
    Tier.objects.update(concurrency=100)
    carol = User.objects.create_user("carol", tier=pro)
    assert [ask(alice).status_code for _ in range(4)] == [202] * 4
    broker.hset(drain_key(model.pk), mapping={"runs": 1, "busy_ms": 70_000, "squares": 2 * 70_000**2})

    late = ask(alice)

    assert (late.status_code, code_of(late)) == (503, "queue_full")
    assert int(late.headers["Retry-After"]) in {50, 51}  # 70 for the next, and 4 times 70 behind; the deadline is 300
    assert ask(carol).status_code == 202  # before whom one of those goes


@pytest.mark.usefixtures("free", "pro")
@pytest.mark.parametrize(
    ("runs", "between_s"),
    [({"free": 250, "pro": 240}, (185, 200)), ({"free": 10, "plus": 90, "pro": 390}, (1, 30))],
    ids=["until the others leave", "until one in its own places leaves"],
)
def test_who_is_refused_is_told_how_long_until_there_is_a_place(
    model: Model, broker: Redis, runs: dict[str, int], between_s: tuple[int, int]
) -> None:
    Tier.objects.filter(pk="free").update(shed_at_percent=60, queue_depth=500)
    Tier.objects.update(queue_deadline_s=10_000)
    weights = {"free": 1, "plus": 3, "pro": 8}
    parts = {"weight": weights, "waiting": runs}
    drain = {"runs": 100, "busy_ms": 100_000, "squares": 2 * 100 * 1000**2}  # one leaves each second
    by_tier = {f"{name}:{tier}": number for name, part in parts.items() for tier, number in part.items()}
    broker.hset(drain_key(model.pk), mapping=cast(dict[Any, Any], drain | by_tier))

    wait_s = queueing.retry_after_s(Waiting(runs, weights), model, Tier.objects.get(pk="free"))

    assert between_s[0] <= wait_s <= between_s[1]


def test_a_tiers_own_depth_is_its_bound_too(alice: User, pro: Tier, model: Model) -> None:
    Tier.objects.update(concurrency=100)
    Tier.objects.filter(pk="free").update(queue_depth=2)

    assert [ask(alice).status_code for _ in range(3)] == [202, 202, 503]
    assert ask(User.objects.create_user("carol", tier=pro)).status_code == 202


def test_of_many_at_once_no_more_get_in_than_may_wait(pro: Tier, model: Model) -> None:
    Tier.objects.update(queue_depth=5)
    users = [User.objects.create_user(f"user{n}", tier=pro) for n in range(20)]

    statuses = at_once([lambda user=user: ask(user).status_code for user in users])  # type: ignore[misc]

    assert statuses == [202] * 5 + [503] * 15
    assert Run.objects.count() == 5


def test_a_users_own_limits_hold_until_their_end_date(alice: User, model: Model) -> None:
    limit(alice, concurrency=1)
    assert [ask(alice).status_code for _ in range(2)] == [202, 429]

    Override.objects.update(until=timezone.now())

    assert ask(alice).status_code == 202


def test_with_the_streams_away_prompts_are_taken_and_nothing_is_reserved(
    alice: User, model: Model, settings: LazySettings
) -> None:
    settings.STREAMS_URL = "redis://127.0.0.1:1/0"

    assert ask(alice).status_code == 202
