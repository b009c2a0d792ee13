"""Asked for again with its ETag, what has not changed is 304."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from chat.models import Chat, Role, Run, Status
from tests.acts import add_message, bring, code_of

NewRun = Callable[..., Run]


@pytest.fixture
def addresses(chat: Chat, new_run: NewRun) -> list[str]:
    """All that have an ETag, of a chat with a question that is being answered."""
    question = new_run(Status.STREAMING).prompt
    return ["/api/chats", f"/api/chats/{chat.pk}", f"/api/chats/{chat.pk}/messages", f"/api/messages/{question.pk}"]


def etags(client: Client, addresses: list[str]) -> list[str]:
    """The ETag of each."""
    return [client.get(address).headers["ETag"] for address in addresses]


def statuses(client: Client, addresses: list[str], had: list[str]) -> list[int]:
    """How each is answered to who has those ETags."""
    asked = zip(addresses, had, strict=True)
    return [client.get(address, headers={"If-None-Match": etag}).status_code for address, etag in asked]


def test_what_has_not_changed_is_304_without_a_body(as_alice: Client, addresses: list[str]) -> None:
    for address in addresses:
        first = as_alice.get(address)
        again = as_alice.get(address, headers={"If-None-Match": first.headers["ETag"]})

        assert (again.status_code, again.content) == (304, b"")
        assert {"Content-Type", "Content-Length"}.isdisjoint(again.headers)
        for answer in (first, again):
            assert set(answer.headers["Cache-Control"].split(", ")) == {"private", "no-cache"}
            assert {"Authorization", "Cookie"} <= set(answer.headers["Vary"].split(", "))
            assert "RateLimit" in answer.headers
        assert again.headers["ETag"] == first.headers["ETag"]


@pytest.mark.parametrize("form", ["*", "W/{}", '"other", {}', 'W/"other",W/{}'])
def test_any_form_of_the_tag_will_do(as_alice: Client, addresses: list[str], form: str) -> None:
    [etag] = etags(as_alice, addresses[:1])

    assert statuses(as_alice, addresses[:1], [form.format(etag)]) == [304]


@pytest.mark.parametrize("had", ['"other"', "", "nonsense", '"*"'])
def test_another_tag_gets_the_answer(as_alice: Client, addresses: list[str], had: str) -> None:
    assert statuses(as_alice, addresses, [had] * 4) == [200] * 4


def test_a_new_name_is_another_answer(as_alice: Client, chat: Chat, addresses: list[str]) -> None:
    had = etags(as_alice, addresses)

    as_alice.patch(f"/api/chats/{chat.pk}", {"title": "Another"}, content_type="application/json")

    assert statuses(as_alice, addresses, had) == [200, 200, 304, 304]


def test_a_new_message_is_another_answer(as_alice: Client, chat: Chat, addresses: list[str]) -> None:
    had = etags(as_alice, addresses)

    add_message(chat, Role.ASSISTANT, "Hello")

    assert statuses(as_alice, addresses, had) == [304, 304, 200, 304]


def test_a_run_that_goes_on_is_another_answer(as_alice: Client, chat: Chat, new_run: NewRun) -> None:
    run = new_run(Status.QUEUED)
    addresses = [f"/api/chats/{chat.pk}/messages", f"/api/messages/{run.prompt_id}"]
    had = etags(as_alice, addresses)

    bring(run, Status.STREAMING)

    assert statuses(as_alice, addresses, had) == [200, 200]


@pytest.mark.parametrize("which", [1, 2, 3])
def test_who_has_the_tag_and_not_the_chat_is_told_nothing(
    as_alice: Client, as_bob: Client, client: Client, addresses: list[str], which: int
) -> None:
    for had in (as_alice.get(addresses[which]).headers["ETag"], "*"):
        refused = as_bob.get(addresses[which], headers={"If-None-Match": had})
        nobody = client.get(addresses[which], headers={"If-None-Match": had})

        assert (refused.status_code, code_of(refused)) == (404, "not_found")
        assert (nobody.status_code, code_of(nobody)) == (401, "not_authenticated")
        assert "ETag" not in refused.headers
        assert "no-store" in refused.headers["Cache-Control"]


def test_a_list_of_another_user_is_another_answer(as_alice: Client, as_bob: Client, addresses: list[str]) -> None:
    assert statuses(as_bob, addresses[:1], etags(as_alice, addresses[:1])) == [200]


def test_head_has_the_same_tag(as_alice: Client, addresses: list[str]) -> None:
    had = etags(as_alice, addresses)

    assert [as_alice.head(address).headers["ETag"] for address in addresses] == had
    answer = as_alice.head(addresses[0], headers={"If-None-Match": had[0]})
    assert answer.status_code == 304


def test_changes_heed_no_tag(as_alice: Client, chat: Chat) -> None:
    answer = as_alice.patch(
        f"/api/chats/{chat.pk}", {"title": "A"}, content_type="application/json", headers={"If-None-Match": "*"}
    )

    assert (answer.status_code, answer.json()["title"]) == (200, "A")
    assert "ETag" not in answer.headers
    assert "no-store" in answer.headers["Cache-Control"]


def test_a_browser_that_signs_out_leaves_nothing_behind(signed_in: Client, addresses: list[str]) -> None:
    first = signed_in.get(addresses[1])

    assert "no-store" in first.headers["Cache-Control"]
    assert statuses(signed_in, addresses[1:2], [first.headers["ETag"]]) == [304]
