"""What a list costs each database, and which of them it is read from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from uuid import UUID

import pytest
from django.conf import LazySettings
from django.db import OperationalError, connections, router
from django.test import Client
from django.test.utils import CaptureQueriesContext

from chat import services
from chat.models import Chat, Mark, Message, Run, Status, User
from chatsite.database import replica
from chatsite.database.absence import Absence

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def _replica(settings: LazySettings, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One that never lags: the database itself, under the replica's name."""
    monkeypatch.setitem(connections.settings, replica.ALIAS, connections.settings["default"])
    connections[replica.ALIAS] = connections["default"].copy()
    settings.DATABASE_ROUTERS = ["chatsite.database.replica.Router"]
    monkeypatch.setattr(replica, "_absence", Absence())
    yield
    connections[replica.ALIAS].close()
    del connections[replica.ALIAS]


def asked(client: Client, path: str) -> dict[str, list[str]]:
    """Which table each query of a GET is for, by database."""
    with (
        CaptureQueriesContext(connections["default"]) as primary,
        CaptureQueriesContext(connections[replica.ALIAS]) as other,
    ):
        assert client.get(path).status_code == 200
    return {
        name: [query["sql"].split('"')[1] for query in captured.captured_queries]
        for name, captured in (("primary", primary), ("replica", other))
    }


@pytest.mark.usefixtures("_replica")
def test_a_list_costs_the_replica_one_cheap_query_more(signed_in: Client, chat: Chat) -> None:
    costs = asked(signed_in, "/api/chats")

    assert costs == {"primary": ["django_session", "chat_user"], "replica": ["chat_mark", "chat_chat"]}


@pytest.mark.usefixtures("_replica")
def test_messages_are_looked_up_in_the_replica_and_their_chat_in_the_primary(
    signed_in: Client, chat: Chat, new_run: Callable[..., Run]
) -> None:
    new_run(Status.DONE)

    costs = asked(signed_in, f"/api/chats/{chat.pk}/messages")

    assert costs["primary"] == ["django_session", "chat_user", "chat_chat"]
    assert costs["replica"] == ["chat_mark", "chat_message", "chat_run"]


@pytest.mark.usefixtures("_replica")
def test_where_the_mark_is_another_the_primary_is_asked(
    signed_in: Client, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chat.lists._mark_there", lambda _: UUID(int=1))

    assert asked(signed_in, "/api/chats")["primary"][-1] == "chat_chat"


@pytest.mark.usefixtures("_replica")
def test_a_page_that_answers_a_form_reads_the_primary(signed_in: Client, chat: Chat) -> None:
    with CaptureQueriesContext(connections[replica.ALIAS]) as other:
        assert signed_in.post(f"/chats/{chat.pk}/ask", {"content": ""}).status_code == 400

    assert not other.captured_queries


@pytest.mark.usefixtures("_replica")
def test_a_replica_that_fails_is_let_be_for_a_while(
    signed_in: Client, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def fail(_: UUID) -> UUID:
        tries.append(1)
        raise OperationalError

    monkeypatch.setattr("chat.lists._mark_there", fail)

    for _ in range(3):
        assert asked(signed_in, "/api/chats")["primary"][-1] == "chat_chat"
    assert len(tries) == 1


@pytest.mark.usefixtures("_replica")
def test_what_was_read_there_is_written_and_read_further_in_the_primary(chat: Chat) -> None:
    with replica.reading():
        found = Chat.objects.get()
        assert router.db_for_write(Chat, instance=found) == "default"

    assert router.db_for_read(Chat, instance=found) == "default"


def mark(user: User) -> UUID | None:
    return Mark.objects.filter(pk=user.pk).values_list("value", flat=True).first()


def test_the_mark_is_new_with_whatever_changes_in_lists(
    alice: User, bob: User, chat: Chat, new_run: Callable[..., Run]
) -> None:
    run = new_run(Status.QUEUED)
    changes: list[Callable[[], object]] = [
        lambda: Chat.objects.create(owner=alice),
        lambda: Chat.objects.filter(pk=chat.pk).update(title="Renamed"),
        lambda: Run.objects.claim(run.pk, "worker", timedelta(minutes=1)),
        lambda: new_run(Status.DONE, in_chat=Chat.objects.create(owner=alice)),
        lambda: services.delete(alice, Chat.objects.get(pk=chat.pk)),
    ]
    seen = [mark(alice)]
    for change in changes:
        change()
        seen.append(mark(alice))

    assert len(set(seen)) == len(seen)
    assert mark(bob) is None


def test_what_no_list_shows_changes_no_mark(alice: User, new_run: Callable[..., Run]) -> None:
    run = new_run(Status.STREAMING)
    before = mark(alice)

    Run.objects.filter(pk=run.pk).update(lease_until=run.lease_until)
    Message.objects.update(html="<p>", html_version=1)
    Chat.objects.create(owner=alice, is_kept=False)

    assert mark(alice) == before


def test_a_user_who_is_deleted_leaves_no_mark(alice: User, chat: Chat, new_run: Callable[..., Run]) -> None:
    new_run(Status.STREAMING)

    services.delete_user(alice)

    assert not Mark.objects.exists()
