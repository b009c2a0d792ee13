"""GET /api/runs/{id}"""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from chat.models import Run, Status
from tests.acts import A_DETAIL, code_of

NewRun = Callable[..., Run]


def test_a_queued_run_shows_what_is_known(as_alice: Client, new_run: NewRun) -> None:
    run = new_run()

    shown = as_alice.get(f"/api/runs/{run.pk}").json()

    assert shown.pop("created_at").endswith("Z")
    assert shown == {
        "id": str(run.pk),
        "chat_id": str(run.chat_id),
        "prompt_id": str(run.prompt_id),
        "answer_id": None,
        "kind": "reply",
        "model": run.model_id,
        "auto": None,
        "tier": "free",
        "status": "queued",
        "attempt": 0,
        "max_output_tokens": 64,
        "input_tokens": 3,
        "cached_tokens": 0,
        "output_tokens": 0,
        "charged_tokens": 0,
        "epoch": 0,
        "left_out": 0,
        "finish_reason": "",
        "error": None,
        "released_at": None,
        "started_at": None,
        "first_token_at": None,
        "finished_at": None,
        "stream": f"/api/runs/{run.pk}/stream",
    }


def test_a_finished_run_shows_its_counts_and_times(as_alice: Client, new_run: NewRun) -> None:
    run = new_run(Status.DONE)

    shown = as_alice.get(f"/api/runs/{run.pk}").json()

    assert (shown["status"], shown["answer_id"], shown["output_tokens"]) == ("done", str(run.answer_id), 2)
    assert shown["created_at"] <= shown["started_at"] <= shown["finished_at"]


def test_a_failed_run_says_why(as_alice: Client, new_run: NewRun) -> None:
    run = new_run(Status.FAILED)

    assert as_alice.get(f"/api/runs/{run.pk}").json()["error"] == {"code": "generation_failed", "detail": A_DETAIL}


def test_it_takes_two_queries(
    as_alice: Client, new_run: NewRun, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    run = new_run(Status.DONE)

    with django_assert_num_queries(2):
        as_alice.get(f"/api/runs/{run.pk}")


def test_somebody_elses_run_is_not_found(as_bob: Client, new_run: NewRun) -> None:
    answer = as_bob.get(f"/api/runs/{new_run().pk}")

    assert (answer.status_code, code_of(answer)) == (404, "not_found")


@pytest.mark.parametrize("name", [str(uuid4()), "7", "nil"])
def test_an_unknown_or_malformed_id_is_not_found(as_alice: Client, name: str) -> None:
    answer = as_alice.get(f"/api/runs/{name}")

    assert (answer.status_code, code_of(answer)) == (404, "not_found")
