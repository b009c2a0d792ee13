"""What people wrote, in the admin: read by who has the permission and asks for it, logged, and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from uuid import uuid4

import pytest
from auditlog.models import LogEntry, LogEntryManager
from django.contrib import admin
from django.contrib.auth.models import Permission
from django.contrib.postgres.fields import ArrayField
from django.db import DatabaseError, connection
from django.db.models import TextField
from django.test import Client
from django.test.utils import CaptureQueriesContext

from chat.admin.words import WordsAdmin
from chat.models import Chat, Run, Status, Summary, User
from scheduler.models import Tier
from tests.chat.test_admin import PAGES

NewRun = Callable[..., Run]
TITLE, QUESTION, ANSWER, SUMMARY = "a private title", "a private question", "a private answer", "a private summary"
WORDS = (TITLE, QUESTION, ANSWER, SUMMARY)
# In a SELECT: the Meta of a permission, or a column of the admin's own log, may have such a name too.
COLUMN = re.compile(r'"chat_(chat"\."title|message"\."(content|token_ids|html)|summary"\."text|checkpoint"\."text)"')
KINDS = ("chat", "message", "summary")
ADDRESSES = {"chat": TITLE, "message": QUESTION, "summary": SUMMARY}


@pytest.fixture
def run(new_run: NewRun, chat: Chat) -> Run:
    """Alice's, in a chat with words of every kind."""
    Chat.objects.filter(pk=chat.pk).update(title=TITLE)
    run = new_run(Status.DONE, text=QUESTION, answer=ANSWER)
    Summary.objects.create(chat=chat, epoch=1, upto=2, text=SUMMARY, run=run)
    Chat.objects.create(owner=chat.owner, continues=chat)
    LogEntry.objects.all().delete()
    return run


@pytest.fixture
def clerk(free: Tier) -> User:
    """Staff who may look at everything and delete it, and read nothing."""
    user = User.objects.create_user("clerk", tier=free, is_staff=True)
    user.user_permissions.add(*Permission.objects.exclude(codename="read_content"))
    return user


@pytest.fixture
def as_clerk(clerk: User) -> Client:
    client = Client()
    client.force_login(clerk)
    return client


def pages(run: Run) -> Mapping[str, str]:
    """Of the rows with words."""
    keys = {"chat": run.chat_id, "message": run.prompt_id, "summary": Summary.objects.only("pk").get().pk}
    return {kind: f"/admin/chat/{kind}/{key}/change/" for kind, key in keys.items()}


def looks() -> list[tuple[str, str, str]]:
    """Who read which row, by the audit log."""
    entries = LogEntry.objects.filter(action=LogEntry.Action.ACCESS).select_related("content_type")
    return [(entry.additional_data["username"], entry.content_type.model, entry.object_pk) for entry in entries]


@pytest.mark.parametrize("kind", KINDS)
def test_who_has_the_permission_reads_words_by_asking_for_them_and_each_look_is_logged(
    as_operator: Client, run: Run, kind: str
) -> None:
    page = pages(run)[kind]
    before = as_operator.get(page).content.decode()
    assert 'href="?read"' in before
    assert not any(words in before for words in WORDS)
    assert looks() == []

    after = as_operator.get(f"{page}?read").content.decode()

    assert ADDRESSES[kind] in after
    assert looks() == [("operator", kind, page.split("/")[4])]
    as_operator.get(f"{page}?read")
    assert len(looks()) == 2
    row = as_operator.get("/admin/auditlog/logentry/").content.decode().partition("<tbody>")[2]
    assert "operator" in row
    assert "access" in row
    assert f'href="{page}"' in row


@pytest.mark.parametrize("kind", KINDS)
def test_without_the_permission_words_are_neither_shown_nor_read_nor_offered(
    as_clerk: Client, run: Run, kind: str
) -> None:
    for address in (pages(run)[kind], f"{pages(run)[kind]}?read"):
        with CaptureQueriesContext(connection) as captured:
            answer = as_clerk.get(address)
        assert answer.status_code == 200
        assert not any(words in answer.content.decode() for words in WORDS)
        assert "?read" not in answer.content.decode()
        assert not [query["sql"] for query in captured if COLUMN.search(query["sql"])]
    assert looks() == []


def test_the_permission_alone_opens_no_page(free: Tier, run: Run) -> None:
    reader = User.objects.create_user("reader", tier=free, is_staff=True)
    reader.user_permissions.add(Permission.objects.get(codename="read_content"))
    client = Client()
    client.force_login(reader)

    assert {client.get(f"{page}?read").status_code for page in pages(run).values()} == {403}
    assert looks() == []


def test_what_cannot_be_logged_is_not_shown(as_operator: Client, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object, **_kwargs: object) -> None:
        raise DatabaseError

    page = pages(run)["message"]
    monkeypatch.setattr(LogEntryManager, "log_create", fail)
    as_operator.raise_request_exception = False

    answer = as_operator.get(f"{page}?read")

    assert answer.status_code == 500
    assert QUESTION not in answer.content.decode()


def test_every_column_that_holds_text_is_private() -> None:
    for rows in admin.site._registry.values():
        if isinstance(rows, WordsAdmin):
            columns = rows.model._meta.concrete_fields
            texts = {column.name for column in columns if isinstance(column, TextField | ArrayField)}
            assert {*texts, rows.words} == set(rows.private), rows


@pytest.mark.parametrize("act", ["delete", "history"])
def test_pages_that_show_no_words_read_none_however_they_are_asked(as_operator: Client, run: Run, act: str) -> None:
    page = pages(run)["chat"].replace("/change/", f"/{act}/?read")

    with CaptureQueriesContext(connection) as captured:
        assert TITLE not in as_operator.get(page).content.decode()

    assert not [query["sql"] for query in captured if COLUMN.search(query["sql"])]
    assert looks() == []


def test_only_headers_of_such_a_page_are_no_look(as_operator: Client, run: Run) -> None:
    with CaptureQueriesContext(connection) as captured:
        assert as_operator.head(f"{pages(run)['message']}?read").status_code == 200

    assert not [query["sql"] for query in captured if COLUMN.search(query["sql"])]
    assert looks() == []


def test_no_page_of_any_row_reads_words(as_operator: Client, run: Run) -> None:
    addresses = ["/admin/"]
    for page in PAGES:
        model = next(model for model in admin.site._registry if model._meta.label_lower == page.replace("/", "."))
        addresses += [f"/admin/{page}/", f"/admin/{page}/?q={run.chat_id}", f"/admin/{page}/?q=alice"]
        for key in model._default_manager.values_list("pk", flat=True):
            addresses += [f"/admin/{page}/{key}/{act}/" for act in ("change", "delete", "history")]
    assert len(addresses) > 50

    for address in addresses:
        with CaptureQueriesContext(connection) as captured:
            answer = as_operator.get(address)
        assert answer.status_code in {200, 403}, address
        assert not [query["sql"] for query in captured if COLUMN.search(query["sql"])], address
        assert not any(words in answer.content.decode() for words in WORDS), address


@pytest.mark.parametrize(
    "lookup",
    [
        *("message/?content__startswith=a", "message/?token_ids__contains=1", "chat/?title__icontains=private"),
        *("summary/?text__contains=a", "summary/?chat__title__contains=a", "run/?prompt__content__startswith=a"),
        *("run/?chat__title__startswith=a", "run/?chat__messages__content__startswith=a", "apikey/?digest__gt=a"),
        *("user/?chats__title__startswith=a", "user/?chats__messages__content__contains=a", "chat/?o=title"),
    ],
)
def test_no_address_asks_about_words_letter_by_letter(as_operator: Client, run: Run, lookup: str) -> None:
    as_operator.raise_request_exception = False

    with CaptureQueriesContext(connection) as captured:
        answer = as_operator.get(f"/admin/chat/{lookup}")

    assert answer.status_code == 400 or "?o=" in lookup
    assert not [query["sql"] for query in captured if COLUMN.search(query["sql"])]


@pytest.mark.parametrize("term", [*WORDS, "private", str(uuid4())])
@pytest.mark.parametrize("page", ["chat/chat", "chat/message", "chat/summary", "chat/run"])
def test_searches_look_at_ids_and_names(as_operator: Client, run: Run, page: str, term: str) -> None:
    assert "0 " in re.findall(
        r'class="paginator">\s*(\d+ )', as_operator.get(f"/admin/{page}/?q={term}").content.decode()
    )
    for found in (run.chat_id, "alic"):
        assert (
            f"/admin/{page}/" in as_operator.get(f"/admin/{page}/?q={found}").content.decode().partition("<tbody>")[2]
        )


@pytest.mark.parametrize(("rows", "field"), [("run", "prompt"), ("run", "chat"), ("message", "chat")])
def test_nor_does_autocompletion_tell(as_operator: Client, run: Run, rows: str, field: str) -> None:
    asked = {"app_label": "chat", "model_name": rows, "field_name": field, "term": ""}

    with CaptureQueriesContext(connection) as captured:
        answer = as_operator.get("/admin/autocomplete/", asked)

    assert answer.json()["results"]
    assert not any(words in answer.content.decode() for words in WORDS)
    assert not [query["sql"] for query in captured if COLUMN.search(query["sql"])]


def test_a_chat_that_an_operator_deletes_is_in_the_audit_log_and_in_recent_actions_by_its_id(
    as_operator: Client, run: Run
) -> None:
    as_operator.post(f"/admin/chat/chat/{run.chat_id}/delete/", {"post": "yes"})

    [entry] = LogEntry.objects.filter(action=LogEntry.Action.DELETE)
    assert (entry.object_repr, entry.changes) == (str(run.chat_id), {"owner": ["alice", "None"]})
    index = as_operator.get("/admin/").content.decode()
    assert str(run.chat_id) in index
    assert not any(words in index for words in WORDS)


def test_a_confirmation_counts_what_goes_and_names_what_may_not(as_operator: Client, clerk: User, run: Run) -> None:
    page = f"/admin/chat/chat/{run.chat_id}/delete/"
    shown = as_operator.get(page).content.decode()
    assert all(f"<li>{part}</li>" in shown for part in ("2 messages", "1 run", "1 summary"))

    clerk.user_permissions.remove(Permission.objects.get(codename="delete_message"))
    client = Client()
    client.force_login(clerk)

    assert "permission to delete the following types of objects" in client.get(page).content.decode()
    assert client.post(page, {"post": "yes"}).status_code == 403
    assert Chat.objects.filter(pk=run.chat_id).exists()
