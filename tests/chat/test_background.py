"""Titles and summaries: whatever becomes of them, no turn waits for one, fails by it or pays for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.conf import LazySettings
from django.db import IntegrityError, transaction
from django.db.models.functions import Now
from django.test import Client
from redis import Redis

from chat import accounting, background, cancelling, folding, queueing, services, titles
from chat.models import Chat, Outcome, Run, Status, Summary, User
from chat.recovery import Reaper
from scheduler.models import LedgerEntry, Model
from scheduler.room import BACKGROUND, room_key
from tests.chat.conversing import Conversation, conversing
from tests.chat.test_folding import question, until_folding

pytestmark = pytest.mark.django_db(transaction=True)

KINDS = (Run.Kind.TITLE, Run.Kind.SUMMARY)


@pytest.fixture
def model(model: Model) -> Model:
    model.context_window = 1024
    model.save()
    return model


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Says by a directive how the engine deals with background runs."""

    def say(directive: str) -> None:
        for chore in (titles, folding):
            monkeypatch.setattr(chore, "ASK", f"Do it. [[script {directive}]]")

    return say


async def until_due(conversation: Conversation, kind: Run.Kind) -> Run:
    """Turns until such a run waits; it."""
    await until_folding(conversation) if kind is Run.Kind.SUMMARY else await conversation.turn(question(1))
    run = await conversation.waiting(kind)
    assert run is not None
    return run


async def stood(conversation: Conversation) -> tuple[str, int]:
    """What a background run may change: the title, and the epoch."""
    title = await conversation.do(lambda: Chat.objects.get(pk=conversation.chat.pk).title)
    return title, len(await conversation.epochs())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "course",
    [
        ('{"failure": "generation_failed", "fail_after_tokens": 2}', "generation_failed"),
        ('{"failure": "prompt_rejected"}', "prompt_rejected"),
        ('{"text": " \\n \\t "}', background.EMPTY),
    ],
    ids=["fails", "is refused", "says nothing"],
)
async def test_one_that_fails_or_says_nothing_changes_nothing(
    chat: Chat, model: Model, scripted: Callable[[str], None], kind: Run.Kind, course: tuple[str, str]
) -> None:
    directive, code = course
    async with conversing(chat, model) as conversation:
        await until_due(conversation, kind)
        scripted(directive)
        failed = await conversation.background(kind)
        assert await stood(conversation) == ("", 0)
        after = await conversation.turn("Go on?")

    assert (failed.status, failed.error_code, failed.charged_tokens) == (Status.FAILED, code, 0)
    assert (after.status, after.epoch) == (Status.DONE, 0)


@pytest.mark.parametrize("kind", KINDS)
async def test_one_that_hangs_is_given_up_and_holds_up_nobody(
    chat: Chat, model: Model, scripted: Callable[[str], None], kind: Run.Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with conversing(chat, model) as conversation:
        run = await until_due(conversation, kind)
        scripted('{"first_token_ms": 600000}')
        hanging = asyncio.create_task(conversation.answered(run))
        after = await conversation.turn("Meanwhile?")
        assert not hanging.done()
        assert (await conversation.do(lambda: Run.objects.get(pk=run.pk))).status == Status.STREAMING
        monkeypatch.setattr(background, "SILENCE_S", 0.1)
        hanging.cancel()
        await asyncio.wait({hanging})
        await conversation.do(lambda: Run.objects.filter(pk=run.pk).update(lease_until=Now() - timedelta(seconds=1)))
        given_up = await conversation.answered(run)

        assert conversation.engine.load().requests == 0
        assert await stood(conversation) == ("", 0)
    assert after.status == Status.DONE
    assert (given_up.status, given_up.error_code) == (Status.FAILED, background.TIMEOUT)


@pytest.mark.parametrize("kind", KINDS)
async def test_nobody_pays_for_one(chat: Chat, model: Model, alice: User, kind: Run.Kind) -> None:
    def accounts() -> tuple[int, list[tuple[int, int]]]:
        level = accounting.buckets().level(alice.pk, alice.limits)
        return level.full_in_s > 0, list(LedgerEntry.objects.values_list("runs", "charged_tokens"))

    async with conversing(chat, model) as conversation:
        await until_due(conversation, kind)
        before = await conversation.do(accounts)
        done = await conversation.background(kind)
        assert await conversation.do(accounts) == before
    assert (done.status, done.charged_tokens) == (Status.DONE, 0)
    assert done.output_tokens > 0


async def test_one_counts_neither_towards_the_users_runs_nor_makes_the_chat_busy(
    chat: Chat, model: Model, alice: User
) -> None:
    async with conversing(chat, model) as conversation:
        await until_due(conversation, Run.Kind.SUMMARY)
        for _ in range(alice.tier.concurrency):
            other = await conversation.do(lambda: Chat.objects.create(owner=alice))
            conversation.chat, kept = other, conversation.chat
            await conversation.ask("Hi")
            conversation.chat = kept
        live = await conversation.do(lambda: Run.objects.live().exclude(kind="reply").count())
    assert live == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_one_whose_workers_die_is_buried_and_the_chat_goes_on(chat: Chat, model: Model, kind: Run.Kind) -> None:
    async with conversing(chat, model) as conversation:
        run = await until_due(conversation, kind)

        def die_twice() -> None:
            for _ in range(2):
                Run.objects.claim(run.pk, "mortal", timedelta(minutes=1))
                Run.objects.filter(pk=run.pk).update(lease_until=Now() - timedelta(seconds=1))
            Reaper(period_s=0).round()

        await conversation.do(die_twice)
        buried = await conversation.worker.row(run)
        after = await conversation.turn("Go on?")
        again = await conversation.waiting(kind)

    assert (buried.status, buried.error_code, buried.answer_id) == (Status.FAILED, "worker_lost", None)
    assert after.status == Status.DONE
    # A title is tried once; what is too long must be folded.
    assert (again is None) == (kind is Run.Kind.TITLE)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_chat_that_is_deleted_takes_its_background_runs_along(
    chat: Chat, model: Model, broker: Redis, kind: Run.Kind, caplog: pytest.LogCaptureFixture
) -> None:
    async with conversing(chat, model) as conversation:
        run = await until_due(conversation, kind)
        await conversation.do(lambda: services.delete(chat.owner, Chat.objects.get(pk=chat.pk)))
        await conversation.worker.attempts.run(run.pk)

    assert broker.zcard(room_key(model.slug, BACKGROUND)) == 0
    assert "Traceback" not in caplog.text


async def test_one_that_waited_too_long_ends_and_is_told_to_nobody(chat: Chat, model: Model, streams: Redis) -> None:
    async with conversing(chat, model) as conversation:
        run = await until_due(conversation, Run.Kind.TITLE)
        keys = set(streams.scan_iter("run:*"))
        assert await conversation.do(lambda: cancelling.expire(run))
        expired = await conversation.worker.row(run)

    assert (expired.status, expired.error_code) == (Status.FAILED, "queue_timeout")
    assert set(streams.scan_iter("run:*")) == keys


async def test_their_owner_sees_none_of_them(chat: Chat, model: Model, as_alice: Client) -> None:
    async with conversing(chat, model) as conversation:
        run = await until_due(conversation, Run.Kind.TITLE)
        answers = await conversation.do(
            lambda: [as_alice.get(f"/api/runs/{run.pk}"), as_alice.post(f"/api/runs/{run.pk}/retry")]
        )
    assert [answer.status_code for answer in answers] == [404, 404]


def test_the_rows_themselves_hold_what_must_hold(new_run: Callable[..., Run], chat: Chat) -> None:
    reply = new_run(Status.DONE)
    row = {"chat": chat, "prompt": reply.prompt, "model": reply.model, "tier": reply.tier, "max_output_tokens": 1}
    for kind, name in ((Run.Kind.TITLE, "one_title_run_a_chat"), (Run.Kind.SUMMARY, "one_live_summary_a_chat")):
        Run.objects.create(**row, kind=kind, input_tokens=1)
        with pytest.raises(IntegrityError, match=name), transaction.atomic():
            Run.objects.create(**row, kind=kind, input_tokens=1)
        with pytest.raises(IntegrityError, match="background_run_is_free"), transaction.atomic():
            Run.objects.filter(kind=kind).update(charged_tokens=1)


async def test_with_the_broker_away_the_row_waits_for_the_reaper(
    chat: Chat, model: Model, broker: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as away:
        away.setattr(queueing, "admit", lambda _: None)
        async with conversing(chat, model) as conversation:
            run = await until_due(conversation, Run.Kind.TITLE)
            away.undo()
            found = await conversation.do(
                lambda: queueing.readmit(Run.objects.filter(pk=run.pk).select_related("chat"))
            )

    assert found == 1


async def test_a_chat_gets_one_title_behind_its_first_answer(chat: Chat, model: Model, as_alice: Client) -> None:
    async with conversing(chat, model) as conversation:
        first = await conversation.turn('Hello there [[script {"text": "\\"A Fine Title\\"."}]]')
        run = await conversation.background(Run.Kind.TITLE)
        second = await conversation.turn("Go on")
        again = await conversation.waiting(Run.Kind.TITLE)
        listed = await conversation.do(lambda: as_alice.get("/api/chats").json()["results"])

    assert again is None
    assert (first.status, second.status) == (Status.DONE, Status.DONE)
    assert [row["title"] for row in listed] == ["A Fine Title"]
    # A suffix of the same prefix: nothing of it is computed twice, nor evicted by it.
    before = [
        *conversation.prompt_of(first),
        *(first.answer.token_ids if first.answer and first.answer.token_ids else []),
    ]
    assert conversation.prompt_of(run)[: len(before)] == before


async def test_a_name_that_its_owner_gave_meanwhile_stays(chat: Chat, model: Model, as_alice: Client) -> None:
    async with conversing(chat, model) as conversation:
        await conversation.turn("Hello")
        address, name = f"/api/chats/{chat.pk}", {"title": "Mine"}
        await conversation.do(lambda: as_alice.patch(address, name, content_type="application/json"))
        await conversation.background(Run.Kind.TITLE)
        assert (await stood(conversation))[0] == "Mine"


async def test_a_chat_that_has_a_name_needs_no_title(chat: Chat, model: Model) -> None:
    async with conversing(chat, model) as conversation:
        await conversation.do(lambda: Chat.objects.filter(pk=chat.pk).update(title="Mine"))
        await conversation.turn("Hello")
        assert await conversation.waiting(Run.Kind.TITLE) is None


@pytest.mark.parametrize(
    ("written", "title"),
    [
        ("Paris in Spring", "Paris in Spring"),
        ('  "Paris in Spring."  \nMore.', "Paris in Spring"),
        ("Title: **Paris**", "Paris"),
        ("\n\n# Café «Zoé»", "Café «Zoé"),
        ("می\u200cروم \u202eevil", "می\u200cروم evil"),
        ("\x00\x07", ""),
        ("", ""),
        ("\u3000\u200b", ""),
        ("\u200d", ""),
        ("\u3000" * 90 + "Paris", "Paris"),
        ("!?…", ""),
        ("# **Bold** title", "Bold title"),
        ("Using `max` with `key`:", "Using max with key"),
        ("素早い茶色の狐\ufffd", "素早い茶色の狐"),
        ("🦊", "🦊"),
        ("<think>The user asks about Paris.</think>\n\nParis in Spring", "Paris in Spring"),
        ("<think>The user asks", ""),
        ("word " * 40, "word " * 14 + "word…"),
        ("x" * 200, "x" * 79 + "…"),
    ],
)
def test_a_title_is_what_a_model_wrote_without_its_trimmings(written: str, title: str) -> None:
    assert titles.cleaned(written) == title


async def test_a_model_that_came_to_no_end_of_its_thoughts_has_summed_up_nothing(
    chat: Chat, model: Model, scripted: Callable[[str], None]
) -> None:
    async with conversing(chat, model) as conversation:
        await until_due(conversation, Run.Kind.SUMMARY)
        scripted('{"text": "<think>Where do I begin? It all"}')
        assert (await conversation.background(Run.Kind.SUMMARY)).error_code == background.EMPTY
        await conversation.turn("Go on?")
        scripted('{"text": "<think>Hm.</think> They spoke of numbers."}')
        await conversation.background(Run.Kind.SUMMARY)
        [epoch] = await conversation.epochs()

    assert epoch.text == "They spoke of numbers."


async def test_a_summary_that_another_was_first_with_ends_and_is_not_made_again(chat: Chat, model: Model) -> None:
    async with conversing(chat, model) as conversation:
        await until_due(conversation, Run.Kind.SUMMARY)
        await conversation.do(lambda: Summary.objects.create(chat=chat, epoch=1, upto=2, text="The first."))
        late = await conversation.background(Run.Kind.SUMMARY)
        [epoch] = await conversation.epochs()

    assert (late.status, late.attempt, epoch.text) == (Status.FAILED, 1, "The first.")


@pytest.mark.parametrize("kind", KINDS)
async def test_an_end_whose_reply_was_lost_is_found(chat: Chat, model: Model, kind: Run.Kind) -> None:
    async with conversing(chat, model) as conversation:
        run = await until_due(conversation, kind)

        def twice() -> list[bool]:
            claim = Run.objects.claim(run.pk, "worker", timedelta(minutes=1))
            claimed, done = Run.objects.claimed(claim), Outcome(Status.DONE)
            return [background.finish(claimed, claim.attempt, done, "Some text", 0) for _ in range(2)]

        assert await conversation.do(twice) == [True, True]
        assert (await stood(conversation)) == (("Some text", 0) if kind is Run.Kind.TITLE else ("", 1))


async def test_a_bug_in_a_chore_ends_its_run(chat: Chat, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    async with conversing(chat, model) as conversation:
        await until_due(conversation, Run.Kind.TITLE)
        monkeypatch.setattr(titles, "prompt", lambda _: 1 / 0)
        broken = await conversation.background(Run.Kind.TITLE)

    assert (broken.status, broken.error_code) == (Status.FAILED, "internal_error")


async def test_a_title_that_no_worker_had_time_for_is_due_again(chat: Chat, model: Model) -> None:
    async with conversing(chat, model) as conversation:
        run = await until_due(conversation, Run.Kind.TITLE)
        await conversation.do(lambda: cancelling.expire(run))
        await conversation.turn("Go on?")
        assert await conversation.waiting(Run.Kind.TITLE)


async def test_they_may_wait_for_longer_than_people(chat: Chat, model: Model) -> None:
    async with conversing(chat, model) as conversation:
        run = await until_due(conversation, Run.Kind.TITLE)

        def is_overdue(age: timedelta) -> bool:
            Run.objects.filter(pk=run.pk).update(created_at=Now() - age)
            return Run.objects.overdue().filter(pk=run.pk).exists()

        assert not await conversation.do(lambda: is_overdue(timedelta(minutes=50)))
        assert await conversation.do(lambda: is_overdue(timedelta(minutes=70)))


async def test_switched_off_nothing_follows_an_answer(chat: Chat, model: Model, settings: LazySettings) -> None:
    settings.BACKGROUND_RUNS = False
    async with conversing(chat, model) as conversation:
        await conversation.turn("Hello")
        assert await conversation.waiting(Run.Kind.TITLE) is None
