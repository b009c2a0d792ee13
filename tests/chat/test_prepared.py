"""Statements that are made once are those that Django would make each time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import OperationalError, connections
from django.test.utils import CaptureQueriesContext

from chat.models import Chat, Message, Role, Run, User
from chatsite.database.prepared import Prepared, insert, planned

pytestmark = pytest.mark.django_db(transaction=True)

CHATS = Prepared(
    lambda owner, title: Chat.objects.with_live_run().select_related("owner__tier").filter(owner=owner, title=title),
    owner=UUID(int=1),
    title="a title",
)


def test_it_finds_what_the_queryset_does_with_all_that_belongs_to_it(
    alice: User, bob: User, new_run: object, chat: Chat
) -> None:
    run = new_run()  # type: ignore[operator]
    Chat.objects.create(owner=bob)

    found = CHATS.all(owner=alice.pk, title="")

    assert [(each.pk, each.updated_at, each.live_run_id) for each in found] == [  # type: ignore[attr-defined]
        (chat.pk, chat.updated_at, run.pk)
    ]
    with CaptureQueriesContext(connections["default"]) as none:
        assert (found[0].owner, found[0].owner.tier.slug) == (alice, alice.tier_id)
    assert not none.captured_queries
    assert CHATS.first(owner=uuid4(), title="") is None


def test_values_are_parameters(alice: User) -> None:
    quoted = "'; DROP TABLE chat_chat; -- %s {0}"
    mine = Chat.objects.create(owner=alice, title=quoted)

    assert CHATS.all(owner=alice.pk, title=quoted) == [mine]


def test_the_server_plans_it_once_and_sees_all_that_is_always_the_same(alice: User, chat: Chat) -> None:
    mark, chats = _marked()

    for _ in range(3):
        assert chats.all(owner=alice.pk) == [chat]

    ((statement, executions),) = _kept(mark)
    assert executions == 3
    assert "$1" in statement
    assert "$2" not in statement  # all else is for the planner to see: there are indexes for live runs only


def test_no_other_statement_is_kept_anywhere(alice: User, chat: Chat) -> None:
    secret = uuid4().hex
    CHATS.all(owner=alice.pk, title="")

    assert not Chat.objects.filter(title=secret).exists()

    assert not _kept(secret)
    assert connections["default"].connection is not None
    assert secret not in repr(connections["default"].connection._prepared._counts)


def test_a_plan_from_before_a_migration_costs_one_connection() -> None:
    def ask() -> None:
        with planned() as cursor:
            cursor.execute("SELECT a FROM changing")

    def change(statement: str) -> None:
        with psycopg.connect(**connections["default"].get_connection_params() | {"cursor_factory": None}) as other:
            other.execute(statement)

    change("CREATE TABLE changing (a integer)")
    try:
        ask()
        change("ALTER TABLE changing ALTER COLUMN a TYPE text")
        with pytest.raises(OperationalError, match="before a migration"):
            ask()
        connections["default"].close()
        ask()
    finally:
        change("DROP TABLE changing")


def _marked() -> tuple[str, Prepared[Chat]]:
    """A statement that nobody else sends, and what it is known by."""
    mark = uuid4().hex
    return mark, Prepared(lambda owner: Chat.objects.filter(owner=owner).exclude(title=mark), owner=UUID(int=1))


def _kept(mark: str) -> list[tuple[str, int]]:
    """What the server has planned ahead for this thread's connection, and how often it was asked for."""
    with connections["default"].cursor() as cursor:
        kept = "SELECT statement, generic_plans + custom_plans FROM pg_prepared_statements"
        cursor.execute(f"{kept} WHERE statement LIKE %s", [f"%{mark}%"])
        rows: list[tuple[str, int]] = cursor.fetchall()
    return rows


def test_each_thread_asks_by_a_connection_of_its_own(alice: User, chat: Chat) -> None:
    def asked() -> list[Chat]:
        try:
            return CHATS.all(owner=alice.pk, title="")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as threads:
        assert [task.result() for task in [threads.submit(asked) for _ in range(20)]] == [[chat]] * 20


def test_a_stand_in_that_is_no_parameter_is_a_mistake_that_shows() -> None:
    with pytest.raises(AssertionError, match="owner is no parameter"):
        Prepared(lambda owner: Chat.objects.exclude(title=str(owner)), owner=UUID(int=1)).all(owner=uuid4())
    with pytest.raises(AssertionError, match="wants"):
        CHATS.all(owner=uuid4())


def test_what_is_inserted_is_what_save_would_store(chat: Chat) -> None:
    given = {"chat": chat, "role": Role.ASSISTANT, "content": "Hi", "token_count": 1, "token_ids": [1, 2]}
    saved, inserted = Message(position=1, **given), Message(position=2, **given)
    saved.save(force_insert=True)

    insert(inserted)

    ours, theirs = (
        {
            field.attname: getattr(Message.objects.get(pk=each.pk), field.attname)
            for field in Message._meta.concrete_fields
            if field.attname not in {"id", "position", "created_at"}
        }
        for each in (inserted, saved)
    )
    assert ours == theirs
    assert inserted.created_at == Message.objects.get(pk=inserted.pk).created_at
    inserted.content = "changed"
    inserted.save()
    assert Message.objects.count() == 2


def test_a_run_knows_whose_it_is(alice: User, new_run: object) -> None:
    assert Run.objects.values_list("user_id", flat=True).get(pk=new_run().pk) == alice.pk  # type: ignore[operator]
