"""GET /api/chats and /api/chats/{id}"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from chat.models import Chat, Run, Status, User
from tests.acts import code_of

NewRun = Callable[..., Run]


def titles(client: Client, address: str) -> list[list[str]]:
    """The titles, page by page, until there is no next."""
    found = []
    following: str | None = address
    while following:
        answer = client.get(following).json()
        found.append([chat["title"] for chat in answer["results"]])
        following = answer["next"]
    return found


def test_the_most_recently_active_comes_first(as_alice: Client, alice: User) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(5):
        Chat.objects.create(owner=alice, title=str(number), updated_at=start + timedelta(minutes=number * 7 % 5))

    assert titles(as_alice, "/api/chats?limit=2") == [["2", "4"], ["1", "3"], ["0"]]


def test_chats_of_one_moment_are_neither_lost_nor_repeated(as_alice: Client, alice: User) -> None:
    moment = timezone.now()
    for number in range(7):
        Chat.objects.create(owner=alice, title=str(number), updated_at=moment)

    found = titles(as_alice, "/api/chats?limit=3")

    assert [title for page in found for title in page] == ["6", "5", "4", "3", "2", "1", "0"]


def test_somebody_elses_are_not_listed(as_bob: Client, chat: Chat) -> None:
    assert as_bob.get("/api/chats").json() == {"results": [], "next": None}


def test_a_chat_tells_its_live_run(as_alice: Client, chat: Chat, new_run: NewRun) -> None:
    new_run(Status.DONE)
    assert as_alice.get(f"/api/chats/{chat.pk}").json()["live_run_id"] is None

    live = new_run(Status.STREAMING)

    assert as_alice.get(f"/api/chats/{chat.pk}").json()["live_run_id"] == str(live.pk)
    assert as_alice.get("/api/chats").json()["results"][0]["live_run_id"] == str(live.pk)


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "1",
        "1-x",
        "-",
        "9" * 40 + "-" + "0" * 32,
        "1-" + "0" * 31,
        "nan-" + "0" * 32,
        "1_0-" + "0" * 32,
        "\u0661-" + "0" * 32,
    ],
)
def test_a_cursor_that_is_none_of_ours_is_refused(as_alice: Client, cursor: str) -> None:
    answer = as_alice.get(f"/api/chats?cursor={cursor}")

    assert (answer.status_code, code_of(answer)) == (400, "cursor_invalid")


def test_a_chat_of_somebody_else_is_not_found(as_bob: Client, chat: Chat) -> None:
    answer = as_bob.get(f"/api/chats/{chat.pk}")

    assert (answer.status_code, code_of(answer)) == (404, "not_found")


def test_one_chat_says_what_its_replies_took_and_of_that_what_was_cached(
    as_alice: Client, chat: Chat, new_run: Callable[..., Run]
) -> None:
    counts = {"input_tokens": 300, "cached_tokens": 256, "output_tokens": 20, "charged_tokens": 128}
    for _ in range(2):
        Run.objects.filter(pk=new_run(Status.DONE).pk).update(**counts)
    new_run(Status.DONE, in_chat=Chat.objects.create(owner=chat.owner))

    shown = as_alice.get(f"/api/chats/{chat.pk}").json()["usage"]

    assert shown == {"runs": 2, **{name: 2 * number for name, number in counts.items()}}
