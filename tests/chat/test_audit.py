"""The audit log: each act of an operator is in it, with who, what, old and new; what users do is not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import pytest
from auditlog.models import LogEntry, LogEntryManager
from django.contrib.auth.models import Permission
from django.db import DatabaseError
from django.test import Client
from django.utils import timezone

from chat.models import ApiKey, Chat, Run, User
from scheduler.models import Model, Override, Tier
from tests.acts import at_once
from tests.admin_forms import model_form, override_form, tier_form, user_form

NewRun = Callable[..., Run]
LOG = "/admin/auditlog/logentry/"
Change = tuple[str | None, str, Mapping[str, object]]


@pytest.fixture(autouse=True)
def cast_made(as_operator: Client, alice: User, pro: Tier) -> None:
    """Only what comes after is looked at."""
    LogEntry.objects.all().delete()


def told() -> list[Change]:
    """Who changed which row, and how; the oldest first."""
    entries = LogEntry.objects.order_by("pk").select_related("actor", "content_type")
    return [(entry.actor and entry.actor.username, entry.content_type.model, entry.changes) for entry in entries]


def test_a_tiers_change_is_kept_with_old_and_new(as_operator: Client, free: Tier) -> None:
    as_operator.post("/admin/scheduler/tier/free/change/", tier_form(free, concurrency=3, weight=4))

    assert told() == [("operator", "tier", {"concurrency": ["2", "3"], "weight": [str(free.weight), "4"]})]
    page = as_operator.get(LOG).content.decode()
    assert "operator" in page
    assert "concurrency: 2 → 3" in page


def test_a_tier_that_is_made_and_deleted(as_operator: Client, free: Tier) -> None:
    as_operator.post("/admin/scheduler/tier/add/", tier_form(free, slug="team", name="Team"))
    as_operator.post("/admin/scheduler/tier/team/delete/", {"post": "yes"})

    [(maker, _, made), (deleter, _, deleted)] = told()
    assert maker == deleter == "operator"
    assert made["slug"] == ["None", "team"]
    assert deleted["slug"] == ["team", "None"]
    assert not {"users", "models"} & made.keys()


def test_who_may_use_a_model(as_operator: Client, model: Model) -> None:
    LogEntry.objects.all().delete()
    model.refresh_from_db()
    form = model_form(model, tiers="pro", system_prompt="Be kind.")

    as_operator.post(f"/admin/scheduler/model/{model.slug}/change/", form)

    assert told() == [
        ("operator", "model", {"system_prompt": ["", "Be kind."]}),
        ("operator", "model", {"tiers": {"type": "m2m", "operation": "delete", "objects": ["Free"]}}),
    ]
    assert "tiers: Free → \n" in as_operator.get(LOG).content.decode().replace("<", "\n<")


def test_a_users_tier_and_override(as_operator: Client, alice: User) -> None:
    page = f"/admin/chat/user/{alice.pk}/change/"
    as_operator.post(page, user_form(tier="pro"))
    as_operator.post(page, override_form(alice, "2100-01-01", concurrency="5") | {"tier": "pro"})
    as_operator.post(page, override_form(alice, "2100-01-01", is_there=True, concurrency="6") | {"tier": "pro"})

    [tier, made, changed] = told()
    assert tier == ("operator", "user", {"tier": ["free", "pro"]})
    assert made[:2] == ("operator", "override")
    assert made[2]["concurrency"] == ["None", "5"]
    assert changed == ("operator", "override", {"concurrency": ["5", "6"]})


def test_what_an_operator_lets_another_do(as_operator: Client, alice: User) -> None:
    may_look = Permission.objects.get(codename="view_tier")
    rights = {"is_staff": "on", "user_permissions": str(may_look.pk)}

    as_operator.post(f"/admin/chat/user/{alice.pk}/change/", user_form(**rights))

    assert told() == [
        ("operator", "user", {"is_staff": ["False", "True"]}),
        ("operator", "user", {"user_permissions": {"type": "m2m", "operation": "add", "objects": [str(may_look)]}}),
    ]


def test_what_is_deleted_with_a_user_and_from_a_list(as_operator: Client, alice: User, bob: User) -> None:
    Override.objects.create(user=bob, until=timezone.now(), concurrency=5)
    LogEntry.objects.all().delete()
    listed = {"action": "delete_selected", "_selected_action": [alice.pk, bob.pk], "post": "yes"}

    as_operator.post("/admin/chat/user/", listed)

    assert sorted((who, what) for who, what, _ in told()) == [
        ("operator", "override"),
        ("operator", "user"),
        ("operator", "user"),
    ]


def test_a_key_that_is_revoked_and_a_run_that_is_cancelled(as_operator: Client, alice: User, new_run: NewRun) -> None:
    key, _ = ApiKey.objects.issue(alice, "laptop")
    run = new_run()
    LogEntry.objects.all().delete()

    as_operator.post("/admin/chat/apikey/", {"action": "revoke", "_selected_action": [key.pk]})
    as_operator.post("/admin/chat/run/", {"action": "cancel", "_selected_action": [run.pk]})

    assert [(who, what, set(change)) for who, what, change in told()] == [
        ("operator", "apikey", {"revoked_at"}),
        ("operator", "run", {"cancel_requested_at"}),
    ]


def test_signing_in_and_up_and_passwords_are_not_in_it(alice: User, client: Client, as_operator: Client) -> None:
    alice.set_password("correct horse battery")
    alice.save()
    client.post("/sign-in", {"username": "alice", "password": "correct horse battery"})
    changed = {"usable_password": "true", "password1": "another horse battery", "password2": "another horse battery"}
    as_operator.post(f"/admin/chat/user/{alice.pk}/password/", changed)
    words = {"password1": "correct horse battery", "password2": "correct horse battery"}
    Client().post("/sign-up", {"username": "carol", **words})

    alice.refresh_from_db()
    assert alice.check_password("another horse battery")
    assert alice.last_login is not None
    assert User.objects.filter(username="carol").exists()
    assert told() == []


def test_what_users_do_is_not_in_it(alice: User, as_alice: Client, model: Model) -> None:
    LogEntry.objects.all().delete()
    chat = Chat.objects.create(owner=alice)

    as_alice.post(f"/api/chats/{chat.pk}/messages", {"content": "Hi"}, content_type="application/json")

    assert told() == []


def test_an_act_from_a_shell_has_no_operator(free: Tier) -> None:
    free.concurrency = 3
    free.save()

    assert told() == [(None, "tier", {"concurrency": ["2", "3"]})]


def test_one_operators_name_does_not_stand_by_anothers_act(as_operator: Client, free: Tier) -> None:
    second = User.objects.create_superuser("second")
    LogEntry.objects.all().delete()
    as_second = Client()
    as_second.force_login(second)

    as_operator.post("/admin/scheduler/tier/free/change/", tier_form(free, concurrency=3))
    as_second.post("/admin/scheduler/tier/free/change/", tier_form(free, concurrency=4))
    Tier.objects.get(slug="free").save()

    assert [who for who, _, _ in told()] == ["operator", "second"]


@pytest.mark.django_db(transaction=True)
def test_operators_at_once_are_not_taken_for_one_another(free: Tier, pro: Tier) -> None:
    def turn(name: str, tier: Tier) -> Callable[[], int]:
        client = Client()
        client.force_login(User.objects.create_superuser(name))
        page = f"/admin/scheduler/tier/{tier.slug}/change/"
        return lambda: sum(client.post(page, tier_form(tier, weight=20 + n)).status_code == 302 for n in range(10))

    turns = [turn("first", free), turn("second", pro)]
    LogEntry.objects.all().delete()

    assert at_once(turns) == [10, 10]
    entries = LogEntry.objects.values_list("actor__username", "object_pk")
    assert Counter(entries) == {("first", "free"): 10, ("second", "pro"): 10}


def test_what_cannot_be_audited_is_not_done(as_operator: Client, free: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object, **_kwargs: object) -> None:
        raise DatabaseError

    monkeypatch.setattr(LogEntryManager, "log_create", fail)
    as_operator.raise_request_exception = False

    as_operator.post("/admin/scheduler/tier/free/change/", tier_form(free, concurrency=3))

    assert Tier.objects.get(slug="free").concurrency == free.concurrency


def test_an_operators_name_outlives_the_operator(as_operator: Client, operator: User, free: Tier) -> None:
    as_operator.post("/admin/scheduler/tier/free/change/", tier_form(free, concurrency=3))
    operator.delete()
    client = Client()
    client.force_login(User.objects.create_superuser("successor"))

    [row] = [row for row in client.get(LOG).content.decode().split("<tr") if "2 → 3" in row]

    assert "operator" in row


def test_nobody_edits_or_deletes_entries(as_operator: Client, free: Tier) -> None:
    as_operator.post("/admin/scheduler/tier/free/change/", tier_form(free, concurrency=3))
    entry = LogEntry.objects.get()

    assert as_operator.get(f"{LOG}add/").status_code == 403
    assert as_operator.post(f"{LOG}{entry.pk}/change/", {"changes": "{}"}).status_code == 403
    assert as_operator.post(f"{LOG}{entry.pk}/delete/", {"post": "yes"}).status_code == 403
    listed = {"action": "delete_selected", "_selected_action": [entry.pk], "post": "yes"}
    as_operator.post(LOG, listed)
    assert LogEntry.objects.get().changes == entry.changes


def test_values_are_shown_as_text(as_operator: Client, model: Model) -> None:
    model.system_prompt = "<script>alert(1)</script>" + "x" * 200
    model.save()
    entry = LogEntry.objects.latest()

    for page in (LOG, f"{LOG}{entry.pk}/change/"):
        assert "<script>alert" not in as_operator.get(page).content.decode()
    assert "x" * 200 not in as_operator.get(LOG).content.decode()
    assert "x" * 200 in as_operator.get(f"{LOG}{entry.pk}/change/").content.decode()
