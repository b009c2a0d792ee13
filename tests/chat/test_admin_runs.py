"""The admin's list of runs: filters, what they read, links, and the acts: cancel and retry."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from uuid import UUID

import pytest
from auditlog.models import LogEntry, LogEntryManager
from django.conf import LazySettings
from django.contrib.auth.models import Permission
from django.db import DatabaseError
from django.db.models import F
from django.test import Client
from django.utils import timezone
from redis import Redis

from chat import services
from chat.admin.filters import ASKED_WITHIN, WorkerFilter, first_id
from chat.admin.retrying import AT_ONCE
from chat.models import Chat, Run, Status, User
from inference import reports
from inference.reports import Report
from scheduler.admin import CutPaginator
from scheduler.models import Model, Tier
from tests.acts import bring

NewRun = Callable[..., Run]
RUNS = "/admin/chat/run/"


@pytest.fixture
def another(new_run: NewRun, alice: User) -> Callable[..., Run]:
    """Makes runs of Alice's, each in a chat of its own."""

    def make(status: Status = Status.QUEUED, *, age: timedelta = timedelta(0), worker: str = "") -> Run:
        run = new_run(status, in_chat=Chat.objects.create(owner=alice))
        Run.objects.filter(pk=run.pk).update(created_at=F("created_at") - age)
        if worker:
            Run.objects.filter(pk=run.pk).update(worker=worker)
        return run

    return make


@pytest.fixture
def reporting(streams: Redis, model: Model) -> Iterator[str]:
    """The name of a worker that reports and has taken no run yet."""
    seconds, _ = streams.time()
    streams.hset(reports.KEY, "fresh@host", f"{seconds * 1000} {Report(model=model.pk).encoded()}")
    yield "fresh@host"
    streams.delete(reports.KEY)


def listed(client: Client, query: str) -> set[UUID]:
    """The runs that a list has rows for."""
    answer = client.get(f"{RUNS}?{query}")
    assert answer.status_code == 200, query
    rows = answer.content.decode().partition("<tbody>")[2].partition("</tbody>")[0]
    return {UUID(key) for key in re.findall(r'<th class="field-id"><a href="/admin/chat/run/([0-9a-f-]{36})/', rows)}


# Filters.


def test_runs_are_filtered_by_how_long_they_have_waited_or_been_written(
    as_operator: Client, another: Callable[..., Run]
) -> None:
    ages = [timedelta(seconds=5), timedelta(minutes=2), timedelta(minutes=20), timedelta(hours=2)]
    waiting = [another(age=age).pk for age in ages]
    writing = [another(Status.STREAMING, age=age).pk for age in ages]
    another(Status.DONE, age=timedelta(days=9))

    for least, choice in enumerate(("live-minute", "live-ten-minutes", "live-hour"), start=1):
        assert listed(as_operator, f"age={choice}") == {*waiting[least:], *writing[least:]}


def test_and_by_when_they_were_asked(as_operator: Client, another: Callable[..., Run]) -> None:
    ages = [timedelta(minutes=5), timedelta(hours=5), timedelta(days=5), timedelta(days=9)]
    runs = [another(Status.DONE, age=age).pk for age in ages]

    for count, choice in enumerate(ASKED_WITHIN, start=1):
        assert listed(as_operator, f"age={choice}") == set(runs[:count])
    assert listed(as_operator, "age=nonsense") == set(runs)


def test_an_id_tells_when_it_was_made() -> None:
    at = timezone.now()

    assert first_id(at) <= Run().pk < first_id(at + timedelta(seconds=5))


def test_runs_are_filtered_by_worker_of_those_that_report_and_those_of_late(
    as_operator: Client, another: Callable[..., Run], reporting: str
) -> None:
    on_one, on_two = (another(Status.STREAMING, worker=f"gpu{number}@host").pk for number in (1, 2))
    another()

    assert listed(as_operator, "worker=gpu1%40host") == {on_one}
    assert listed(as_operator, "worker=gpu2%40host") == {on_two}
    assert listed(as_operator, "worker=who%40knows") == set()
    page = as_operator.get(RUNS).content.decode()
    for name in ("gpu1", "gpu2", reporting.removesuffix("@host")):
        assert f'<a href="?worker={name}%40host">{name}@host</a>' in page
    assert "who@knows" in as_operator.get(f"{RUNS}?worker=who%40knows").content.decode()


def test_workers_of_long_ago_are_not_looked_for(
    as_operator: Client, another: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WorkerFilter, "LATEST", 2)
    for number in range(3):
        another(Status.STREAMING, worker=f"gpu{number}")

    page = as_operator.get(RUNS).content.decode()

    assert [f"?worker=gpu{number}" in page for number in range(3)] == [False, True, True]


def test_with_the_streams_away_the_list_is_there(
    as_operator: Client, another: Callable[..., Run], settings: LazySettings, silent_redis: str
) -> None:
    run = another(Status.STREAMING, worker="gpu1")
    settings.STREAMS_URL = silent_redis

    assert listed(as_operator, "worker=gpu1") == {run.pk}


def test_filters_go_together(as_operator: Client, another: Callable[..., Run], pro: Tier) -> None:
    run = another(Status.STREAMING, age=timedelta(minutes=2), worker="gpu1")
    another(Status.STREAMING, worker="gpu1")
    another(age=timedelta(minutes=2))
    query = f"status__exact=streaming&model__slug__exact={run.model_id}&kind__exact=reply&age=live-minute&worker=gpu1"

    assert listed(as_operator, f"{query}&tier__slug__exact=free") == {run.pk}
    assert listed(as_operator, f"{query}&tier__slug__exact={pro.pk}") == set()


def test_a_long_list_is_counted_no_further_than_it_can_be_leafed_through(
    as_operator: Client, another: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [another() for _ in range(3)]
    monkeypatch.setattr(CutPaginator, "MOST", 3)
    assert "There may be more" in as_operator.get(RUNS).content.decode()
    of_all = {"action": "cancel", "_selected_action": [runs[0].pk], "select_across": "1"}

    answer = as_operator.post(RUNS, of_all, follow=True)

    assert "Nothing is done" in answer.content.decode()
    assert Run.objects.live().count() == 3
    monkeypatch.setattr(CutPaginator, "MOST", 4)
    assert "There may be more" not in as_operator.get(RUNS).content.decode()
    assert "3 told to stop" in as_operator.post(RUNS, of_all, follow=True).content.decode()
    assert not Run.objects.live().exists()


# Links.


def hrefs(client: Client, address: str) -> set[str]:
    """Where a page leads to, past its frame."""
    answer = client.get(address)
    assert answer.status_code == 200, address
    content = answer.content.decode().partition('id="content"')[2]
    return {href.replace("&amp;", "&") for href in re.findall(r'href="(/admin/[^"]+)"', content)}


def test_pages_lead_to_each_other_and_to_lists_that_are_not_empty(
    as_operator: Client, new_run: NewRun, chat: Chat, alice: User
) -> None:
    run = new_run(Status.DONE)
    answer = run.answer_id
    of_chat, of_user = f"chat__id__exact={chat.pk}", f"owner__id__exact={alice.pk}"
    expected = {
        f"chat/run/{run.pk}": {
            *(f"chat/user/{alice.pk}/change/", f"chat/chat/{chat.pk}/change/"),
            *(f"chat/message/{run.prompt_id}/change/", f"chat/message/{answer}/change/"),
        },
        f"chat/chat/{chat.pk}": {
            f"chat/user/{alice.pk}/change/",
            *(f"chat/{kind}/?{of_chat}" for kind in ("run", "message", "summary")),
        },
        f"chat/message/{run.prompt_id}": {
            f"chat/chat/{chat.pk}/change/",
            f"chat/run/?prompt__id__exact={run.prompt_id}",
        },
        f"chat/message/{answer}": {f"chat/run/?answer__id__exact={answer}"},
        f"chat/user/{alice.pk}": {
            *(f"chat/chat/?{of_user}", f"chat/run/?chat__{of_user}", f"chat/apikey/?user__id__exact={alice.pk}"),
            f"scheduler/ledgerentry/?user__id__exact={alice.pk}",
            *(f"auditlog/logentry/?{way}={alice.pk}" for way in ("actor__id__exact", "object_pk__exact")),
        },
        "scheduler/tier/free": {
            *("chat/user/?tier__slug__exact=free", "chat/run/?tier__slug__exact=free"),
            f"scheduler/model/{run.model_id}/change/",
        },
        f"scheduler/model/{run.model_id}": {f"chat/run/?model__slug__exact={run.model_id}"},
    }
    for page, links in expected.items():
        assert {f"/admin/{link}" for link in links} <= hrefs(as_operator, f"/admin/{page}/change/"), page
        for link in links:
            assert as_operator.get(f"/admin/{link}").status_code == 200, link
            if link.startswith("chat/run/?"):
                assert listed(as_operator, link.partition("?")[2]) == {run.pk}, page


@pytest.mark.parametrize(
    ("rows", "leads_to"), [("run", {"user", "chat"}), ("chat", {"user", "run"}), ("message", {"chat"})]
)
def test_so_do_lists(as_operator: Client, new_run: NewRun, rows: str, leads_to: set[str]) -> None:
    new_run(Status.DONE)

    found = hrefs(as_operator, f"/admin/chat/{rows}/")

    assert leads_to <= {href.split("/")[3] for href in found}


def test_anothers_rows_are_not_in_them(as_operator: Client, new_run: NewRun, bob: User) -> None:
    new_run(Status.DONE)

    assert listed(as_operator, f"chat__owner__id__exact={bob.pk}") == set()


# Acts.


def act(client: Client, name: str, *runs: Run) -> str:
    """Choose an action for runs; what the operator is told."""
    answer = client.post(RUNS, {"action": name, "_selected_action": [run.pk for run in runs]}, follow=True)
    assert answer.status_code == 200
    told = re.findall(r'<ul class="messagelist">(.*?)</ul>', answer.content.decode(), re.DOTALL)
    return " ".join(told)


def test_a_cancel_says_how_many_it_told_to_stop(as_operator: Client, another: Callable[..., Run]) -> None:
    told = act(as_operator, "cancel", another(), another(Status.STREAMING), another(Status.DONE))

    assert "2 told to stop. 1 had ended." in told


def test_a_cancel_of_a_run_that_has_just_been_deleted_is_no_error(
    as_operator: Client, another: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    def delete(_log: LogEntryManager, run: Run, **_entry: object) -> None:
        Chat.objects.filter(pk=run.chat_id).delete()

    monkeypatch.setattr(LogEntryManager, "log_create", delete)

    assert "1 told to stop." in act(as_operator, "cancel", another())


@pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED], ids=lambda status: status.value)
def test_a_retry_is_another_run_for_the_owner_and_audited(
    as_operator: Client, another: Callable[..., Run], alice: User, status: Status
) -> None:
    run = another(status)
    LogEntry.objects.all().delete()

    assert "1 of 1 retried." in act(as_operator, "retry", run)

    again = Run.objects.live().get()
    assert (again.prompt_id, again.user_id, again.tier) == (run.prompt_id, alice.pk, run.tier)
    entry = LogEntry.objects.get()
    assert (entry.actor and entry.actor.username, entry.object_pk) == ("operator", str(run.pk))
    assert set(entry.changes) == {"retry_requested_at"}


def test_what_is_not_retried_is_told_run_by_run(
    as_operator: Client, new_run: NewRun, another: Callable[..., Run], free: Tier, chat: Chat
) -> None:
    Tier.objects.filter(pk=free.pk).update(concurrency=3)
    followed, latest = new_run(Status.FAILED), new_run(Status.CANCELLED)
    fit, live, done = another(Status.FAILED), another(Status.STREAMING), another(Status.DONE)
    title = chat.runs.create(
        kind=Run.Kind.TITLE,
        prompt=latest.prompt,
        model=latest.model,
        tier=free,
        input_tokens=1,
        max_output_tokens=1,
    )
    bring(title, Status.FAILED)
    unknown = another(Status.FAILED)
    Run.objects.filter(pk=unknown.pk).update(model=Model.objects.create(slug="gone", context_window=9))
    LogEntry.objects.all().delete()

    told = act(as_operator, "retry", followed, latest, fit, live, done, title, unknown)

    assert "2 of 7 retried." in told
    assert "5 not retried" in told
    for run, reason in (
        *((followed, "Another run has followed it in its chat."), (live, "It is streaming."), (done, "It is done.")),
        *((title, "It is no reply."), (unknown, "Model unknown. There is no such model for your tier.")),
    ):
        assert f"{run.pk}: {reason}" in told
    assert set(Run.objects.filter(status=Status.QUEUED).values_list("prompt", flat=True)) == {
        latest.prompt_id,
        fit.prompt_id,
    }
    assert {entry.object_pk for entry in LogEntry.objects.all()} == {str(run.pk) for run in (latest, fit, unknown)}


def test_a_refusal_of_the_owners_limits_is_told(as_operator: Client, another: Callable[..., Run], free: Tier) -> None:
    runs = [another(Status.FAILED) for _ in range(free.concurrency + 1)]

    told = act(as_operator, "retry", *runs)

    assert "2 of 3 retried." in told
    assert "Too many answers at once." in told


def test_a_model_whose_tokenizer_is_broken_is_no_error_of_the_page(
    as_operator: Client, another: Callable[..., Run], model: Model
) -> None:
    run = another(Status.FAILED)
    Model.objects.filter(pk=model.pk).update(source="/nowhere")

    assert "Model unusable." in act(as_operator, "retry", run)


def test_a_retry_that_was_answered_meanwhile_is_not_written_again(
    as_operator: Client, new_run: NewRun, alice: User
) -> None:
    failed = new_run(Status.FAILED)
    bring(services.retry(alice, failed), Status.DONE)

    assert "0 of 1 retried." in act(as_operator, "retry", failed)
    assert not Run.objects.live().exists()


def test_nothing_is_retried_for_who_may_not_sign_in(
    as_operator: Client, another: Callable[..., Run], alice: User
) -> None:
    run = another(Status.FAILED)
    User.objects.filter(pk=alice.pk).update(is_active=False)

    assert "Its owner may not sign in." in act(as_operator, "retry", run)


def test_no_more_than_a_page_is_retried_at_once(
    as_operator: Client, another: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chat.admin.runs.AT_ONCE", 1)

    told = act(as_operator, "retry", another(Status.FAILED), another(Status.FAILED))

    assert AT_ONCE == 100
    assert "None retried: select 1 at most." in told
    assert not Run.objects.live().exists()


def test_a_retry_that_cannot_be_audited_is_not_made(
    as_operator: Client, another: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object, **_kwargs: object) -> None:
        raise DatabaseError

    run = another(Status.FAILED)
    monkeypatch.setattr(LogEntryManager, "log_create", fail)
    as_operator.raise_request_exception = False

    as_operator.post(RUNS, {"action": "retry", "_selected_action": [run.pk]})

    assert not Run.objects.live().exists()


@pytest.mark.parametrize(("name", "permission"), [("cancel", "delete_run"), ("retry", "add_run")])
def test_each_act_has_a_permission(free: Tier, another: Callable[..., Run], name: str, permission: str) -> None:
    user = User.objects.create_user("clerk", tier=free, is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_run"))
    client = Client()
    client.force_login(user)
    run = another(Status.QUEUED if name == "cancel" else Status.FAILED)
    before = Run.objects.values_list("pk", "status")
    as_it_was = set(before.all())

    act(client, name, run)
    assert set(before.all()) == as_it_was
    assert f'value="{name}"' not in client.get(RUNS).content.decode()

    user.user_permissions.add(Permission.objects.get(codename=permission))
    act(client, name, run)

    assert set(before.all()) != as_it_was
