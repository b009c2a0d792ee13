"""The status of a run changes as TRANSITIONS says, whoever writes: checked at the database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import product

import pytest
from django.db import IntegrityError, transaction
from django.db.models import F
from django.db.models.functions import Now

from chat.models import TRANSITIONS, Chat, Outcome, Role, Run, RunTaken, Status, User
from tests.acts import add_message

NewRun = Callable[..., Run]
PAIRS = list(product(Status, Status))


def columns(run: Run, status: Status) -> dict[str, object]:
    """What a row in `status` must have, so that only the transition itself can be refused."""
    streams, ends = status is Status.STREAMING, status.is_terminal
    answer = run.answer or (add_message(run.chat, Role.ASSISTANT, "Hello") if status is Status.DONE else None)
    return {
        "status": status,
        "attempt": 1 if streams else (0 if status is Status.QUEUED else F("attempt")),
        "lease_until": Now() + timedelta(minutes=1) if streams else None,
        "started_at": None if status is Status.QUEUED else Now(),
        "finished_at": Now() if ends else None,
        "answer": answer if ends else None,
    }


@pytest.mark.parametrize(("before", "after"), PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])
def test_the_database_allows_exactly_the_transitions_in_the_table(
    new_run: NewRun, before: Status, after: Status
) -> None:
    run = new_run(before)
    rows = Run.objects.filter(pk=run.pk)

    if after in TRANSITIONS[before]:
        assert rows.update(**columns(run, after)) == 1
    else:
        with pytest.raises(IntegrityError, match="cannot go from"), transaction.atomic():
            rows.update(**columns(run, after))
        assert rows.get().status == before


def test_a_cancelled_run_cannot_be_done(new_run: NewRun) -> None:
    run = new_run(Status.STREAMING)
    assert run.finish(1, Outcome(Status.CANCELLED), None)

    assert not run.finish(1, Outcome(Status.DONE), None)

    assert Run.objects.get(pk=run.pk).status == Status.CANCELLED


def test_an_older_attempt_cannot_finish(new_run: NewRun) -> None:
    run = new_run(Status.STREAMING)
    Run.objects.filter(pk=run.pk).update(lease_until=Now() - timedelta(seconds=1))
    assert Run.objects.claim(run.pk, "another", timedelta(minutes=1)).attempt == 2

    assert not run.finish(1, Outcome(Status.FAILED), None)


def test_a_run_whose_lease_holds_cannot_be_claimed(new_run: NewRun) -> None:
    run = new_run(Status.STREAMING)

    with pytest.raises(RunTaken):
        Run.objects.claim(run.pk, "another", timedelta(minutes=1))


def test_a_run_cannot_be_done_without_an_answer(new_run: NewRun) -> None:
    run = new_run(Status.STREAMING)

    with pytest.raises(IntegrityError, match="reply_done_has_answer"), transaction.atomic():
        run.finish(1, Outcome(Status.DONE), None)


def test_two_runs_cannot_have_one_answer(new_run: NewRun, alice: User) -> None:
    done = new_run(Status.DONE)
    other = new_run(Status.STREAMING, in_chat=Chat.objects.create(owner=alice))

    with pytest.raises(IntegrityError, match="answer_id"), transaction.atomic():
        other.finish(1, Outcome(Status.DONE), done.answer_id)


def test_a_chat_cannot_have_two_live_replies(new_run: NewRun) -> None:
    new_run(Status.QUEUED)

    with pytest.raises(IntegrityError, match="one_live_reply_a_chat"), transaction.atomic():
        new_run(Status.QUEUED)
