"""The admin: everything is there, nobody's words are in a list, and a list of many rows takes no more queries."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, Permission
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from redis.client import PubSub

from chat.models import ApiKey, Chat, Role, Run, Status, Summary, User
from scheduler.models import Model, ModelVersion, Rollout, RoutingRule, Tier, Worker
from tests.acts import add_message, bring, code_of
from tests.admin_forms import add_entry, user_form

NewRun = Callable[..., Run]
PAGES = sorted(model._meta.label_lower.replace(".", "/") for model in admin.site._registry)
INLINE = re.compile(r"<script(?![^>]*(?:src=|json))[^>]*>|<style|\sstyle=|\son\w+=|javascript:")
SECRET_TEXT = "something private"


@pytest.fixture
def grow(new_run: NewRun) -> Callable[[int], None]:
    """Adds users with rows of every kind, in a tier, of a model and of a worker of their own."""
    names = iter(range(1000))

    def add(count: int) -> None:
        for number in itertools.islice(names, count):
            tier = Tier.objects.create(slug=f"tier{number}", name=f"Tier {number}")
            served = Model.objects.create(slug=f"model{number}", name=f"Model {number}", context_window=2048)
            served.tiers.add(tier)
            RoutingRule.objects.create(tier=tier, model=served)
            Group.objects.create(name=f"group{number}")
            user = User.objects.create_user(f"user{number}", tier=tier)
            ApiKey.objects.issue(user, "laptop")
            origin = Chat.objects.create(owner=user)
            chat = Chat.objects.create(owner=user, title=SECRET_TEXT, continues=origin)
            Summary.objects.create(chat=chat, epoch=1, upto=0, text=SECRET_TEXT)
            run = new_run(Status.DONE, in_chat=chat, text=SECRET_TEXT, answer=SECRET_TEXT)
            Run.objects.filter(pk=run.pk).update(worker=f"gpu{number}@host", model=served)
            add_entry(user, served)
            version = ModelVersion.objects.create(model=served, source="/models", context_window=2048)
            Rollout.objects.create(model=served, version=version, previous=version)
            Worker.objects.create(name=f"gpu{number}", model=served, version=version, target=version, phase="serving")

    return add


def test_every_kind_of_row_is_looked_at() -> None:
    of_users = {"user", "apikey", "chat", "message", "run", "summary", "ledgerentry"}
    kinds = {*of_users, "tier", "model", "routingrule", "logentry", "group"}
    kinds |= {"modelversion", "rollout", "worker"}
    assert {page.partition("/")[2] for page in PAGES} == kinds


def queries(client: Client, address: str) -> list[str]:
    """What the database is asked for a page."""
    with CaptureQueriesContext(connection) as captured:
        assert client.get(address).status_code == 200, address
    return [query["sql"] for query in captured]


@pytest.mark.parametrize("page", PAGES)
def test_a_list_of_thirty_takes_as_many_queries_as_one_of_three(
    as_operator: Client, grow: Callable[[int], None], page: str
) -> None:
    grow(3)
    address = f"/admin/{page}/"
    queries(as_operator, address)  # content types are cached
    few = queries(as_operator, address)

    grow(27)

    assert len(queries(as_operator, address)) == len(few)


@pytest.fixture
def grow_alices(new_run: NewRun, alice: User, chat: Chat, model: Model) -> Callable[[int], None]:
    """Adds to what belongs to Alice, her chat, her tier, and their model."""
    numbers = iter(range(1000))

    def add(count: int) -> None:
        for number in itertools.islice(numbers, count):
            model.tiers.add(Tier.objects.create(slug=f"tier{number}", name=f"Tier {number}"))
            other = Model.objects.create(slug=f"model{number}", name=f"Model {number}", context_window=2048)
            other.tiers.add(alice.tier)
            ModelVersion.objects.create(model=model, source="/models", context_window=2048)
            add_entry(alice, other)
            ApiKey.objects.issue(alice, "laptop")
            Chat.objects.create(owner=alice, continues=chat)
            new_run(Status.DONE)
            Summary.objects.create(chat=chat, epoch=number + 1, upto=0, text="x")

    return add


@pytest.mark.parametrize("act", ["change", "delete", "history"])
@pytest.mark.parametrize("page", ["chat/user", "chat/chat", "scheduler/tier", "scheduler/model"])
def test_a_page_of_what_has_thirty_parts_takes_as_many_queries_as_of_what_has_three(
    as_operator: Client, grow_alices: Callable[[int], None], page: str, act: str
) -> None:
    grow_alices(3)
    row = {
        "chat/user": User.objects.get(username="alice"),
        "chat/chat": Chat.objects.get(continues=None),
        "scheduler/tier": Tier.objects.get(slug="free"),
        "scheduler/model": Model.objects.get(is_default=True),
    }[page]
    address = f"/admin/{page}/{row.pk}/{act}/"
    queries(as_operator, address)
    few = queries(as_operator, address)

    grow_alices(27)

    assert len(queries(as_operator, address)) == len(few)


@pytest.mark.parametrize("page", PAGES)
def test_no_list_shows_what_people_wrote(as_operator: Client, grow: Callable[[int], None], page: str) -> None:
    grow(1)

    assert SECRET_TEXT not in as_operator.get(f"/admin/{page}/").content.decode()


@pytest.mark.parametrize("page", [*PAGES, "chat/user/add", "scheduler/model/add", "password_change"])
def test_no_page_has_anything_inline_that_the_content_policy_would_stop(
    as_operator: Client, grow: Callable[[int], None], page: str
) -> None:
    grow(1)

    assert not INLINE.findall(as_operator.get(f"/admin/{page}/").content.decode())


@pytest.mark.parametrize("page", PAGES)
def test_each_row_has_a_page_with_nothing_inline(as_operator: Client, grow: Callable[[int], None], page: str) -> None:
    grow(1)
    model = admin.site._registry[_model(page)].model

    for row in model.objects.all():
        answer = as_operator.get(f"/admin/{page}/{row.pk}/change/")
        assert answer.status_code == 200
        assert not INLINE.findall(answer.content.decode())


def test_a_chats_page_shows_what_it_goes_on_from_and_a_summarys_page_not_its_text(
    as_operator: Client, grow: Callable[[int], None]
) -> None:
    grow(1)
    summary = Summary.objects.select_related("chat").get()

    chats_page = as_operator.get(f"/admin/chat/chat/{summary.chat_id}/change/").content.decode()
    listed = as_operator.get("/admin/chat/chat/").content.decode()
    summarys_page = as_operator.get(f"/admin/chat/summary/{summary.pk}/change/").content.decode()

    assert f"/admin/chat/chat/{summary.chat.continues_id}/change/" in chats_page
    assert f"/admin/chat/chat/{summary.chat.continues_id}/change/" in listed.partition("field-origin")[2]
    assert str(summary.chat_id) in summarys_page
    assert SECRET_TEXT not in summarys_page


@pytest.mark.parametrize("page", PAGES)
def test_each_list_can_be_searched(as_operator: Client, grow: Callable[[int], None], page: str) -> None:
    grow(1)

    assert as_operator.get(f"/admin/{page}/?q=x").status_code == 200


def _model(page: str) -> type[Any]:
    return next(model for model in admin.site._registry if model._meta.label_lower == page.replace("/", "."))


@pytest.mark.parametrize("query", ["status__exact=queued", "tier__slug__exact=free", "kind__exact=reply"])
def test_runs_can_be_filtered(as_operator: Client, new_run: NewRun, query: str) -> None:
    run = new_run()

    assert str(run.pk) in as_operator.get(f"/admin/chat/run/?{query}").content.decode()
    assert str(run.pk) not in as_operator.get("/admin/chat/run/?status__exact=done").content.decode()


def test_runs_and_messages_cannot_be_written(as_operator: Client, new_run: NewRun) -> None:
    run = new_run()

    answer = as_operator.post(f"/admin/chat/run/{run.pk}/change/", {"status": "done"})

    assert answer.status_code == 403
    assert as_operator.get("/admin/chat/run/add/").status_code == 403
    assert as_operator.get("/admin/chat/message/add/").status_code == 403
    assert as_operator.get("/admin/chat/summary/add/").status_code == 403


def test_a_key_can_be_revoked(as_operator: Client, alice: User) -> None:
    key, secret = ApiKey.objects.issue(alice, "laptop")
    client = Client(headers={"Authorization": f"Bearer {secret}"})
    assert client.get("/api/chats").status_code == 200

    as_operator.post("/admin/chat/apikey/", {"action": "revoke", "_selected_action": [key.pk]})

    assert code_of(client.get("/api/chats")) == "not_authenticated"


def test_a_keys_page_shows_neither_secret_nor_digest(as_operator: Client, alice: User) -> None:
    key, secret = ApiKey.objects.issue(alice, "laptop")

    page = as_operator.get(f"/admin/chat/apikey/{key.pk}/change/").content.decode()

    assert key.shown in page
    assert secret not in page
    assert key.digest not in page


def test_an_operator_changes_a_users_tier_and_a_models_numbers(
    as_operator: Client, alice: User, pro: Tier, model: Model
) -> None:
    assert as_operator.post(f"/admin/chat/user/{alice.pk}/change/", user_form(tier="pro")).status_code == 302
    alice.refresh_from_db()
    assert alice.tier == pro

    page = f"/admin/scheduler/model/{model.slug}/change/"
    form = {"name": "Other", "source": "/models", "context_window": "999", "tiers": "pro", "slug": "changed"}
    form |= {"max_output_tokens": "9", "temperature": "0.5", "top_p": "1"}
    form |= {"queue_depth": "7", "cached_token_percent": "0"}
    assert as_operator.post(page, form).status_code == 302
    found = Model.objects.get()
    assert (found.slug, found.max_output_tokens, list(found.tiers.all())) == (model.slug, 9, [pro])
    assert (found.source, found.context_window) == (model.source, model.context_window), "these are its version's"
    assert (found.queue_depth, found.cached_token_percent) == (7, 0)


@pytest.mark.parametrize("kind", ["user", "group"])
def test_permissions_of_whoever_is_only_looked_at_take_no_query_each(client: Client, alice: User, kind: str) -> None:
    looker = User.objects.create(username="looker", is_staff=True)
    looker.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    client.force_login(looker)
    group = Group.objects.create(name="those")
    shown, address = (
        (alice.user_permissions, f"/admin/chat/user/{alice.pk}/change/")
        if kind == "user"
        else (group.permissions, f"/admin/auth/group/{group.pk}/change/")
    )
    shown.set(Permission.objects.all()[:2])
    queries(client, address)  # content types are cached
    few = queries(client, address)

    shown.set(Permission.objects.all()[:20])

    assert len(queries(client, address)) == len(few)


def test_nobody_else_gets_in(client: Client, alice: User) -> None:
    client.force_login(alice)

    assert client.get("/admin/chat/run/").status_code == 302


@pytest.mark.django_db(transaction=True)  # its worker is told once the chat is gone
def test_a_chat_that_an_operator_deletes_stops_what_is_live_in_it(
    as_operator: Client, alice: User, new_run: NewRun, control: PubSub
) -> None:
    chats = [Chat.objects.create(owner=alice) for _ in range(3)]
    runs = [new_run(Status.STREAMING, in_chat=chat) for chat in chats]
    listed = {"action": "delete_selected", "_selected_action": [chats[0].pk, chats[1].pk], "post": "yes"}

    as_operator.post("/admin/chat/chat/", listed)
    as_operator.post(f"/admin/chat/chat/{chats[2].pk}/delete/", {"post": "yes"})

    heard = [control.get_message(timeout=5) for _ in runs]
    assert {message["data"] for message in heard if message} == {str(run.pk).encode() for run in runs}
    assert not Chat.objects.filter(pk__in=[chat.pk for chat in chats]).exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("way", ["page", "list"])
def test_a_user_whom_an_operator_deletes_takes_what_is_live_along(
    as_operator: Client, alice: User, new_run: NewRun, control: PubSub, way: str
) -> None:
    run = new_run(Status.STREAMING)
    page = f"/admin/chat/user/{alice.pk}/delete/" if way == "page" else "/admin/chat/user/"
    form = {"action": "delete_selected", "_selected_action": [alice.pk], "post": "yes"}

    as_operator.post(page, form)

    assert (control.get_message(timeout=5) or {})["data"] == str(run.pk).encode()
    assert not User.objects.filter(pk=alice.pk).exists()


@pytest.mark.parametrize("part", ["run", "message"])
def test_runs_and_messages_are_deleted_with_their_chat_only(as_operator: Client, new_run: NewRun, part: str) -> None:
    run = new_run(Status.STREAMING)
    key = run.pk if part == "run" else run.prompt_id
    listed = {"action": "delete_selected", "_selected_action": [key], "post": "yes"}

    assert as_operator.post(f"/admin/chat/{part}/{key}/delete/", {"post": "yes"}).status_code == 403
    as_operator.post(f"/admin/chat/{part}/", listed)

    assert Run.objects.filter(pk=run.pk).exists()


def test_a_user_can_be_deleted_with_all_that_is_theirs(as_operator: Client, grow: Callable[[int], None]) -> None:
    grow(1)
    user = User.objects.get(username="user0")
    chat = user.chats.get(title=SECRET_TEXT)
    bring(
        chat.runs.create(
            prompt=add_message(chat, Role.USER, "x"),
            model=Model.objects.get(is_default=True),
            tier=user.tier,
            input_tokens=1,
            max_output_tokens=1,
        ),
        Status.STREAMING,
    )

    as_operator.post(f"/admin/chat/user/{user.pk}/delete/", {"post": "yes"})

    assert not Run.objects.filter(chat__owner=user.pk).exists()
    assert not User.objects.filter(pk=user.pk).exists()
