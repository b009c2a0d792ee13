"""What was said in one request of a program goes soon after its end; the run and its counts stay."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db.models import F
from django.test import Client
from redis import Redis
from redis.exceptions import RedisError

from chat import exporting, forgetting, programs
from chat.admin import retrying
from chat.models import Chat, Message, Role, Run, Status, User
from chat.programs import Asked
from chat.recovery import Reaper
from chat.wishes import Wishes
from inference.streams import run_key
from scheduler.models import Model
from tests.acts import bearing, bring

pytestmark = pytest.mark.django_db(transaction=True)

SAID = [(Role.USER, "A secret."), (Role.ASSISTANT, "Which?"), (Role.USER, "This one.")]
LONGER_AGO = forgetting.KEPT_AFTER_END + timedelta(seconds=1)


@pytest.fixture
def asked(alice: User, model: Model) -> Callable[..., Run]:
    def ask(*, is_kept: bool) -> Run:
        wishes = Wishes(system="Be secret.", stop=("secret",))
        return programs.ask(alice, Asked(SAID, model, wishes, is_kept=is_kept))

    return ask


def ended_long_ago(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(finished_at=F("finished_at") - LONGER_AGO)


def words() -> list[str]:
    return [content for content in Message.objects.values_list("content", flat=True) if content]


@pytest.mark.parametrize("status", [Status.DONE, Status.CANCELLED, Status.FAILED])
def test_nothing_of_it_is_left_but_the_run(asked: Callable[..., Run], streams: Redis, status: Status) -> None:
    run = asked(is_kept=False)
    bring(run, status, "The secret.")
    streams.xadd(run_key(run.pk), {"t": "The secret."}, id="1-1")
    ended_long_ago(run)
    before = Run.objects.get(pk=run.pk)

    Reaper(1).round()

    assert words() == []
    after = Run.objects.get(pk=run.pk)
    assert after.wishes == {}
    assert (after.status, after.input_tokens, after.output_tokens) == (
        status,
        before.input_tokens,
        before.output_tokens,
    )
    assert not streams.exists(run_key(run.pk))
    assert forgetting.forget() == 0


def test_with_the_streams_away_all_of_it_goes_later(asked: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    run = asked(is_kept=False)
    bring(run, Status.DONE, "Yes.")
    ended_long_ago(run)
    with monkeypatch.context() as away:
        away.setattr("chat.last_words._client", lambda: Redis(port=1))
        with pytest.raises(RedisError):
            forgetting.forget()
    assert len(words()) == 4

    assert forgetting.forget() == 1


def test_not_before_its_reader_had_time(asked: Callable[..., Run]) -> None:
    run = asked(is_kept=False)
    assert forgetting.forget() == 0
    bring(run, Status.DONE, "Yes.")
    assert forgetting.forget() == 0
    assert len(words()) == 4

    ended_long_ago(run)

    assert forgetting.forget() == 1


def test_what_is_kept_stays(asked: Callable[..., Run]) -> None:
    run = asked(is_kept=True)
    bring(run, Status.DONE, "Yes.")
    ended_long_ago(run)

    assert forgetting.forget() == 0
    assert [*words(), Run.objects.get().wishes["system"]] == [*(text for _, text in SAID), "Yes.", "Be secret."]


def test_no_list_and_no_page_has_it(asked: Callable[..., Run], alice: User, signed_in: Client) -> None:
    run, client = asked(is_kept=False), bearing(alice)
    bring(run, Status.DONE, "Yes.")

    assert client.get("/api/chats").json()["results"] == []
    assert client.get(f"/api/chats/{run.chat_id}").status_code == 404
    assert signed_in.get(f"/chats/{run.chat_id}").status_code == 404
    assert b"A secret." not in signed_in.get("/").content
    assert client.get(f"/api/runs/{run.pk}").json()["status"] == "done"


def test_nobody_can_have_it_answered_again(asked: Callable[..., Run], alice: User) -> None:
    run, client = asked(is_kept=False), bearing(alice)
    bring(run, Status.FAILED)

    assert client.post(f"/api/runs/{run.pk}/retry").status_code == 404
    assert client.get(f"/api/messages/{run.prompt_id}").status_code == 404
    assert retrying.retry(Run.objects.select_related("chat__owner", "prompt").get(pk=run.pk))
    assert Run.objects.count() == 1


def test_what_is_kept_is_a_chat_as_any_other(asked: Callable[..., Run], alice: User, signed_in: Client) -> None:
    run, client = asked(is_kept=True), bearing(alice)
    bring(run, Status.DONE, "Yes.")

    [chat] = client.get("/api/chats").json()["results"]
    assert chat["title"] == "A secret."
    page = signed_in.get(f"/chats/{run.chat_id}").content.decode()
    assert all(text in page for text in (*(text for _, text in SAID), "Yes."))
    exported = exporting.Form.of("md").text(Chat.objects.visible_to(alice).with_opening().get())
    assert exported.index("A secret.") < exported.index("Which?") < exported.index("This one.") < exported.index("Yes.")
