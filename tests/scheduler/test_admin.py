"""The admin of tiers, models, overrides and the ledger: what can be set, what is refused, and what it does."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.db import IntegrityError, transaction
from django.test import Client
from django.utils import timezone

from chat import accounting
from chat.models import Chat, Run, Status, User
from scheduler.budgets import Reservation
from scheduler.models import LedgerEntry, Model, Override, Tier
from scheduler.models.tiers import MOST_TOKENS
from tests.acts import code_of
from tests.admin_forms import NUMBERS, add_entry, model_form, override_form, tier_form

NewRun = Callable[..., Run]
OwnLimits = Callable[..., Override]
TOO_MANY_TOKENS = MOST_TOKENS + 1


def page_of(user: User) -> str:
    return f"/admin/chat/user/{user.pk}/change/"


def ask(client: Client, user: User) -> int:
    """Ask in a new chat; the answer's status, 202 when it is admitted."""
    chat = Chat.objects.create(owner=user)
    address = f"/api/chats/{chat.pk}/messages"
    return client.post(address, {"content": "Hi"}, content_type="application/json").status_code


def test_a_tier_is_made_with_all_its_numbers_and_shows_its_models(
    as_operator: Client, free: Tier, model: Model
) -> None:
    numbers = {name: 7 + place for place, name in enumerate(NUMBERS)}
    as_operator.post("/admin/scheduler/tier/add/", tier_form(free, slug="team", name="Team", **numbers))
    made = Tier.objects.get(slug="team")
    assert {name: getattr(made, name) for name in NUMBERS} == numbers

    model.tiers.add(made)

    assert model.name in as_operator.get("/admin/scheduler/tier/team/change/").content.decode()


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("budget_tokens", TOO_MANY_TOKENS, "less than or equal to 2000000000"),
        ("refill_tokens_per_hour", TOO_MANY_TOKENS, "less than or equal to 2000000000"),
        ("budget_tokens", 1, "a full budget must hold them"),
        ("refill_tokens_per_hour", 0, "greater than or equal to 1"),
        ("queue_depth", 0, "greater than or equal to 1"),
        ("queue_deadline_s", 0, "greater than or equal to 1"),
        ("shed_at_percent", 101, "less than or equal to 100"),
        ("shed_at_percent", 0, "greater than or equal to 1"),
        ("weight", 0, "greater than or equal to 1"),
    ],
)
def test_a_tiers_number_that_makes_no_sense_is_refused_beside_it(
    as_operator: Client, free: Tier, field: str, value: int, reason: str
) -> None:
    answer = as_operator.post("/admin/scheduler/tier/free/change/", tier_form(free, **{field: value}))

    assert answer.status_code == 200
    [said] = answer.context["adminform"].form.errors[field]
    assert reason in said
    assert getattr(Tier.objects.get(slug="free"), field) == getattr(free, field)


@pytest.mark.parametrize("field", ["budget_tokens", "refill_tokens_per_hour"])
def test_no_row_holds_more_tokens_than_a_bucket_can_count(alice: User, field: str) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Tier.objects.filter(slug="free").update(**{field: TOO_MANY_TOKENS})
    with pytest.raises(IntegrityError), transaction.atomic():
        Override.objects.create(user=alice, until=timezone.now(), **{field: TOO_MANY_TOKENS})


@pytest.mark.parametrize("slug", ["-", "_", ".", "-a", "_a"])
@pytest.mark.parametrize("kind", ["tier", "model"])
def test_a_slug_without_a_letter_or_a_digit_first_is_refused(
    as_operator: Client, free: Tier, model: Model, kind: str, slug: str
) -> None:
    form = tier_form(free) if kind == "tier" else model_form(model, name="Other")
    form.pop("is_default", None)

    answer = as_operator.post(f"/admin/scheduler/{kind}/add/", form | {"slug": slug})

    assert "a letter or a digit first" in answer.content.decode() or "valid “slug”" in answer.content.decode()
    assert not Tier.objects.filter(pk=slug).exists()
    assert not Model.objects.filter(pk=slug).exists()

    as_operator.post(f"/admin/scheduler/{kind}/add/", form | {"slug": "7-a_b"})
    assert (Tier if kind == "tier" else Model).objects.filter(pk="7-a_b").exists()


def test_a_models_answers_must_leave_room_for_a_prompt(as_operator: Client, model: Model) -> None:
    form = model_form(model, max_output_tokens="2048")

    answer = as_operator.post(f"/admin/scheduler/model/{model.slug}/change/", form)

    [said] = answer.context["adminform"].form.errors["max_output_tokens"]
    assert "leave some for the prompt" in said


def test_an_override_is_made_changed_and_deleted_on_its_users_page(as_operator: Client, alice: User) -> None:
    made = override_form(alice, "2100-01-01", concurrency="5", reason="A workshop")
    assert as_operator.post(page_of(alice), made).status_code == 302
    own = User.objects.get(pk=alice.pk)
    assert own.limits.concurrency == 5
    assert own.limits.budget_tokens == own.tier.budget_tokens
    assert own.override.reason == "A workshop"

    changed = override_form(alice, "2100-01-01", is_there=True, concurrency="6")
    assert as_operator.post(page_of(alice), changed).status_code == 302
    assert User.objects.get(pk=alice.pk).limits.concurrency == 6

    deleted = override_form(alice, "2100-01-01", is_there=True, concurrency="6", DELETE="on")
    assert as_operator.post(page_of(alice), deleted).status_code == 302
    assert not Override.objects.exists()


@pytest.mark.parametrize(
    ("budget_tokens", "reason"),
    [("", "at least one number"), (str(TOO_MANY_TOKENS), "less than or equal to 2000000000")],
)
def test_an_override_that_makes_no_sense_is_refused(
    as_operator: Client, alice: User, budget_tokens: str, reason: str
) -> None:
    answer = as_operator.post(page_of(alice), override_form(alice, "2100-01-01", budget_tokens=budget_tokens))

    assert reason in answer.content.decode()
    assert not Override.objects.exists()


def test_a_second_override_is_refused_with_a_reason(as_operator: Client, alice: User) -> None:
    form = override_form(alice, "2100-01-01", concurrency="5")
    second = {name.replace("-0-", "-1-"): value for name, value in form.items() if name.startswith("override-0-")}

    answer = as_operator.post(page_of(alice), form | second | {"override-TOTAL_FORMS": "2"})

    assert "Please submit at most 1 form." in answer.content.decode()
    assert not Override.objects.exists()


def test_an_overrides_new_end_is_refused_beside_it_when_it_has_passed(
    as_operator: Client, alice: User, own_limits: OwnLimits
) -> None:
    answer = as_operator.post(page_of(alice), override_form(alice, "2020-01-01", concurrency="5"))
    assert "This has passed" in answer.content.decode()
    assert not Override.objects.exists()

    until = own_limits(alice, concurrency=5).until
    answer = as_operator.post(page_of(alice), override_form(alice, "2020-01-01", is_there=True, concurrency="5"))
    assert "This has passed" in answer.content.decode()
    assert Override.objects.get().until == until


def test_an_override_that_is_over_does_not_keep_its_users_page_from_being_saved(
    as_operator: Client, alice: User, own_limits: OwnLimits
) -> None:
    own_limits(alice, concurrency=5)
    over = datetime(2020, 1, 1, 0, 0, 0, 123_456, tzinfo=UTC)
    Override.objects.update(until=over)
    form = override_form(alice, "2020-01-01", is_there=True, concurrency="5") | {"tier": "pro"}

    assert as_operator.post(page_of(alice), form).status_code == 302

    assert User.objects.get(pk=alice.pk).tier_id == "pro"


def test_a_users_page_shows_what_ended_today(as_operator: Client, alice: User, bob: User, model: Model) -> None:
    add_entry(alice, model, charged_tokens=123_456)
    add_entry(bob, model, charged_tokens=777_777)
    yesterday = add_entry(alice, Model.objects.create(slug="other", context_window=99), charged_tokens=888_888)
    LedgerEntry.objects.filter(pk=yesterday.pk).update(day=timezone.now().date() - timedelta(days=1))

    page = as_operator.get(page_of(alice)).content.decode()

    assert "123456" in page
    assert "777777" not in page
    assert "888888" not in page


def test_a_users_page_shows_what_is_left_of_the_budget(as_operator: Client, alice: User, free: Tier) -> None:
    full = f"{free.budget_tokens:,} of {free.budget_tokens:,} tokens"
    assert full in as_operator.get(page_of(alice)).content.decode()

    Tier.objects.filter(pk=free.pk).update(budget_tokens=MOST_TOKENS, refill_tokens_per_hour=1)
    alice = User.objects.get(pk=alice.pk)

    accounting.buckets().reserve(Reservation(alice.pk, uuid4()), MOST_TOKENS - 1, alice.limits)

    page = as_operator.get(page_of(alice)).content.decode()
    assert "1 of 2,000,000,000 tokens; full in 876,000.0 h" in page


@pytest.mark.parametrize(
    ("refill_tokens_per_hour", "shown"),
    [(1_000_000, "full in 36 s"), (100_000, "full in 6 min"), (1000, "full in 10.0 h")],
)
def test_a_short_time_until_a_budget_is_full_is_shown_in_its_own_unit(
    as_operator: Client, alice: User, free: Tier, refill_tokens_per_hour: int, shown: str
) -> None:
    Tier.objects.filter(pk=free.pk).update(budget_tokens=10_000, refill_tokens_per_hour=refill_tokens_per_hour)
    alice = User.objects.get(pk=alice.pk)
    accounting.buckets().reserve(Reservation(alice.pk, uuid4()), 10_000, alice.limits)

    assert shown in as_operator.get(page_of(alice)).content.decode()


@pytest.mark.parametrize("query", ["model__slug__exact={}", "user__tier__slug__exact=free", "q=alice", "day__gte={}"])
def test_the_ledger_can_be_filtered_and_searched(as_operator: Client, alice: User, model: Model, query: str) -> None:
    entry = add_entry(alice, model, charged_tokens=123_456)
    value = entry.day if query.startswith("day") else model.slug

    assert "123456" in as_operator.get(f"/admin/scheduler/ledgerentry/?{query.format(value)}").content.decode()
    assert "123456" not in as_operator.get("/admin/scheduler/ledgerentry/?q=bob").content.decode()


def test_nobody_writes_or_deletes_the_ledger(as_operator: Client, alice: User, model: Model) -> None:
    entry = add_entry(alice, model)
    page = f"/admin/scheduler/ledgerentry/{entry.pk}"

    assert as_operator.post(f"{page}/change/", {"runs": "9"}).status_code == 403
    assert as_operator.post(f"{page}/delete/", {"post": "yes"}).status_code == 403
    listed = {"action": "delete_selected", "_selected_action": [entry.pk], "post": "yes"}
    as_operator.post("/admin/scheduler/ledgerentry/", listed)
    assert LedgerEntry.objects.get().runs == 1


def test_a_user_with_a_ledger_can_be_deleted(as_operator: Client, alice: User, model: Model) -> None:
    add_entry(alice, model)

    as_operator.post(f"/admin/chat/user/{alice.pk}/delete/", {"post": "yes"})

    assert not User.objects.filter(pk=alice.pk).exists()


def test_the_next_request_meets_a_tiers_new_limit(
    as_operator: Client, as_alice: Client, alice: User, new_run: NewRun, free: Tier
) -> None:
    for _ in range(free.concurrency - 1):
        new_run(Status.STREAMING, in_chat=Chat.objects.create(owner=alice))
    as_operator.post("/admin/scheduler/tier/free/change/", tier_form(free, concurrency=1))
    assert ask(as_alice, alice) == 429

    as_operator.post("/admin/scheduler/tier/free/change/", tier_form(free, concurrency=9))

    assert ask(as_alice, alice) == 202


def test_an_override_counts_until_its_end(
    as_operator: Client, as_alice: Client, alice: User, new_run: NewRun, free: Tier
) -> None:
    for _ in range(free.concurrency):
        new_run(Status.STREAMING, in_chat=Chat.objects.create(owner=alice))
    assert ask(as_alice, alice) == 429

    as_operator.post(page_of(alice), override_form(alice, "2100-01-01", concurrency="9"))
    assert ask(as_alice, alice) == 202

    Override.objects.update(until=timezone.now())
    assert ask(as_alice, alice) == 429


def test_a_model_that_is_made_inactive_is_refused_at_the_next_request(
    as_operator: Client, as_alice: Client, alice: User, model: Model
) -> None:
    assert ask(as_alice, alice) == 202
    form = model_form(model)
    del form["is_active"]
    as_operator.post(f"/admin/scheduler/model/{model.slug}/change/", form)

    chat = Chat.objects.create(owner=alice)
    answer = as_alice.post(f"/api/chats/{chat.pk}/messages", {"content": "Hi"}, content_type="application/json")

    assert code_of(answer) == "model_unknown"


@pytest.mark.parametrize("page", ["tier/free", "model/{model}"])
def test_what_has_runs_cannot_be_deleted_and_why_is_told_in_numbers(
    as_operator: Client, new_run: NewRun, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    run = new_run(Status.DONE)
    new_run(Status.DONE)
    add_entry(run.chat.owner, run.model)
    address = f"/admin/scheduler/{page.format(model=run.model_id)}/delete/"
    other = "2 users" if page.startswith("tier") else "1 ledger entry"

    shown = as_operator.get(address).content.decode()

    assert "<li>2 runs</li>" in shown
    assert f"<li>{other}</li>" in shown
    as_operator.post(address, {"post": "yes"})
    assert (Tier.objects.filter(slug="free").exists(), Model.objects.exists()) == (True, True)
    monkeypatch.setattr("scheduler.deleting.MOST", 2)
    assert "<li>2 or more runs</li>" in as_operator.get(address).content.decode()
