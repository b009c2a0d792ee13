"""The rolling summary, byte for byte: what leaves the prompt is in the next epoch's input, its text in the prompt."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chat import context, folding, problems, services
from chat.models import Chat, Message, Role, Run, Summary
from inference.scripted_engine import Script
from inference.tokens import Tokenizer
from scheduler.models import Model, Tier
from tests.acts import add_message
from tests.chat.conversing import BLOCK, SCRIPT, Conversation, conversing

pytestmark = pytest.mark.django_db(transaction=True)

WORDS = "one two three four five six seven eight nine ten " * 3
FACT = "My sister's name is Farida, and the code is 4711."


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Says what the model makes of the turns that are folded."""

    def say(text: str) -> None:
        monkeypatch.setattr(folding, "ASK", f'Sum up. [[script {{"text": "{text}"}}]]')

    say("Epoch: Farida, 4711.")
    return say


@pytest.fixture
def model(model: Model) -> Model:
    """With a small window: a dozen turns outgrow it."""
    model.context_window = 1024
    model.system_prompt = "You are kind."
    model.save()
    return model


def question(number: int) -> str:
    return f'{WORDS} question {number}? [[script {{"text": "{WORDS} answer {number}."}}]]'


async def until_folding(conversation: Conversation, start: int = 1) -> Run:
    """Turns until a summary is due; the last of them."""
    for number in range(start, start + 20):
        run = await conversation.turn(question(number))
        if await conversation.waiting(Run.Kind.SUMMARY):
            return run
    raise AssertionError("no summary became due")


async def contents(conversation: Conversation, upto: int, start: int = 1) -> list[str]:
    rows = Message.objects.standing().filter(chat=conversation.chat, position__range=(start, upto))
    return await conversation.do(lambda: list(rows.order_by("position").values_list("content", flat=True)))


async def test_what_is_folded_is_in_the_summarys_input_and_its_text_in_the_next_prompt(
    chat: Chat, model: Model, scripted: Callable[[str], None]
) -> None:
    async with conversing(chat, model) as conversation:
        await conversation.turn(FACT)
        before = await until_folding(conversation, 2)
        fold = await conversation.background(Run.Kind.SUMMARY)
        [epoch] = await conversation.epochs()
        after = await conversation.turn("What is her name?")
        folded = await contents(conversation, epoch.upto)
        kept = await contents(conversation, after.prompt.position, epoch.upto + 1)

    asked = conversation.text(conversation.prompt_of(fold))
    assert folded
    assert FACT in folded
    assert all(content in asked for content in folded)
    assert not any(content in asked for content in kept)
    assert (fold.status, fold.charged_tokens, epoch.text) == ("done", 0, "Epoch: Farida, 4711.")
    prompt = conversation.text(conversation.prompt_of(after))
    assert (after.epoch, after.first_position, after.left_out) == (1, epoch.upto + 1, 0)
    assert context.SUMMARY.format(text=epoch.text) in prompt
    assert all(content in prompt for content in kept)
    assert not any(content in prompt for content in folded)
    assert len(conversation.prompt_of(after)) == after.input_tokens < before.input_tokens


async def test_the_prefix_changes_at_an_epochs_boundary_only(
    chat: Chat, model: Model, scripted: Callable[[str], None]
) -> None:
    boundaries: list[int] = []
    last: Run | None = None
    async with conversing(chat, model) as conversation:
        for number in range(1, 25):
            run = await conversation.turn(question(number))
            ids = conversation.prompt_of(run)
            if last is not None:
                assert last.answer is not None
                before, answer = conversation.prompt_of(last), last.answer.token_ids or []
                grows = ids[: len(before) + len(answer)] == [*before, *answer]
                assert grows == (run.epoch == last.epoch), number
                boundaries += [] if grows else [number]
            last = run
            if await conversation.waiting(Run.Kind.SUMMARY):
                await conversation.background(Run.Kind.SUMMARY)
        epochs = await conversation.epochs()
        runs = await conversation.do(lambda: list(Run.objects.filter(chat=chat, kind="reply").order_by("id")))

    assert [epoch.epoch for epoch in epochs] == list(range(1, len(epochs) + 1))
    assert len(epochs) >= len(boundaries) >= 2
    assert all(run.input_tokens + run.max_output_tokens <= model.context_window for run in runs)
    assert not any(run.left_out for run in runs)


async def test_an_epoch_is_in_the_input_of_the_next(chat: Chat, model: Model, scripted: Callable[[str], None]) -> None:
    async with conversing(chat, model) as conversation:
        await until_folding(conversation)
        await conversation.background(Run.Kind.SUMMARY)
        scripted("The second.")
        await until_folding(conversation, 30)
        fold = await conversation.background(Run.Kind.SUMMARY)
        first, second = await conversation.epochs()
        folded = await contents(conversation, second.upto, first.upto + 1)

    asked = conversation.text(conversation.prompt_of(fold))
    assert context.SUMMARY.format(text=first.text) in asked
    assert all(content in asked for content in folded)
    assert second.text == "The second."


async def test_the_first_turn_of_an_epoch_finds_its_beginning_computed(
    chat: Chat, model: Model, scripted: Callable[[str], None]
) -> None:
    async with conversing(chat, model) as conversation:
        await until_folding(conversation)
        fold = await conversation.background(Run.Kind.SUMMARY)
        run = await conversation.turn("And now?")
        [epoch] = await conversation.epochs()

    warmed = conversation.warmed_by(fold)
    assert conversation.prompt_of(run)[: len(warmed)] == warmed
    assert epoch.warm_tokens == len(warmed)
    assert run.cached_tokens == len(warmed) // BLOCK * BLOCK
    # What all chats with the model begin with is warm anywhere.
    shared = Tokenizer.load(model.source).count(model.system_prompt)
    assert (run.warm_worker, run.warm_tokens) == (fold.worker, len(warmed) - shared)


async def test_folding_computes_little_more_than_what_it_asks(
    chat: Chat, model: Model, scripted: Callable[[str], None]
) -> None:
    async with conversing(chat, model) as conversation:
        await until_folding(conversation)
        fold = await conversation.background(Run.Kind.SUMMARY)

    asking = len(conversation.prompt_of(fold)) - fold.cached_tokens
    assert asking < 2 * BLOCK + 60


async def test_an_epoch_is_taken_up_between_turns_and_not_during_one(
    chat: Chat, model: Model, scripted: Callable[[str], None]
) -> None:
    async with conversing(chat, model) as conversation:
        await until_folding(conversation)
        during = await conversation.ask("While it is made")
        await conversation.background(Run.Kind.SUMMARY)
        during = await conversation.answered(during)
        after = await conversation.turn("Behind it")

    assert (during.epoch, after.epoch) == (0, 1)
    assert len(conversation.prompt_of(during)) == during.input_tokens


async def test_without_a_summary_the_oldest_turns_are_left_out_and_it_is_told(chat: Chat, model: Model) -> None:
    begun = []
    async with conversing(chat, model) as conversation:
        for number in range(1, 25):
            run = await conversation.turn(question(number))
            begun.append(run.first_position)
            prompt = conversation.text(conversation.prompt_of(run))
            assert run.input_tokens + run.max_output_tokens <= model.context_window
            assert run.left_out == run.first_position - 1
            assert question(number) in prompt

    assert begun == sorted(begun)
    # Many at once, so that the next turns find their prefix computed.
    assert 2 <= len(set(begun)) <= 6


async def test_what_was_left_out_is_folded_too(chat: Chat, model: Model, scripted: Callable[[str], None]) -> None:
    async with conversing(chat, model) as conversation:
        run = await conversation.turn(FACT)
        number = 2
        while not run.left_out:
            run = await conversation.turn(question(number))
            number += 1
        while await conversation.waiting(Run.Kind.SUMMARY):
            await conversation.background(Run.Kind.SUMMARY)
            run = await conversation.turn(question(number))
            number += 1
        fold = await conversation.do(lambda: Run.objects.filter(kind="summary").order_by("id").first())

    assert fold is not None
    assert FACT in conversation.text(conversation.prompt_of(fold))
    assert (run.left_out, run.epoch > 0) == (0, True)


async def test_an_exchange_too_long_to_be_folded_is_cut_in_its_middle(
    chat: Chat, model: Model, free: Tier, scripted: Callable[[str], None]
) -> None:
    async with conversing(chat, model) as conversation:
        await conversation.turn("Head. " + "word " * 900 + "Tail.")
        await conversation.turn("Next?")
        fold = await conversation.background(Run.Kind.SUMMARY)

    asked = conversation.text(conversation.prompt_of(fold))
    assert "Head." in asked
    assert "Tail." in asked
    assert folding.GAP.strip() in asked
    assert len(conversation.prompt_of(fold)) + fold.max_output_tokens <= model.context_window


@pytest.fixture
def other(model: Model) -> Model:
    """Another model, of the same tokenizer."""
    row = {"name": "Other", "source": model.source, "context_window": 4096, "system_prompt": "You are terse."}
    return Model.objects.create(slug=f"{model.slug}-other", **row)


async def test_another_model_goes_on_from_the_same_summary(
    chat: Chat, model: Model, other: Model, scripted: Callable[[str], None]
) -> None:
    async with conversing(chat, model) as conversation:
        await until_folding(conversation)
        await conversation.background(Run.Kind.SUMMARY)
        conversation.model = other
        run = await conversation.turn("And you?")

    assert run.epoch == 1
    assert (run.warm_worker, run.cached_tokens) == ("", 0)
    assert "Epoch: Farida, 4711." in conversation.text(conversation.prompt_of(run))


def test_a_message_longer_than_the_window_is_refused_with_the_numbers(chat: Chat, model: Model) -> None:
    Summary.objects.create(chat=chat, epoch=1, upto=0, text="Before.")
    with pytest.raises(problems.PromptTooLong) as refused:
        services.ask(chat.owner, chat, services.Question("word " * 2000, model))

    assert refused.value.data["context_window"] == 1024
    assert refused.value.data["input_tokens"] > 2000
    assert not Message.objects.exists()


def test_a_message_that_just_fits_goes_without_the_summary(chat: Chat, model: Model) -> None:
    Summary.objects.create(chat=chat, epoch=1, upto=0, text="Before. " * 60)
    run = services.ask(chat.owner, chat, services.Question("word " * 900, model))

    # The summary, which covers no message of this chat.
    assert (run.epoch, run.left_out) == (0, 1)
    assert run.input_tokens + run.max_output_tokens <= model.context_window


@pytest.mark.parametrize("script", [SCRIPT, Script(tokens_per_s=5000, chars=20)])
async def test_a_short_chat_is_not_folded(chat: Chat, model: Model, script: Script) -> None:
    async with conversing(chat, model, script) as conversation:
        for number in range(3):
            await conversation.turn(f"Short {number}")
        assert await conversation.waiting(Run.Kind.SUMMARY) is None


def talk(chat: Chat, exchanges: int) -> None:
    for number in range(exchanges):
        add_message(chat, Role.USER, f"{WORDS} {number}?")
        add_message(chat, Role.ASSISTANT, f"{WORDS} {number}.")


def test_a_summary_too_long_for_this_models_window_leaves_room_for_recent_turns(chat: Chat, model: Model) -> None:
    Summary.objects.create(chat=chat, epoch=1, upto=0, text="Before. " * 600)
    talk(chat, 3)
    run = services.ask(chat.owner, chat, services.Question("And now?", model))

    assert (run.epoch, run.first_position, run.left_out) == (0, 1, 1)
    assert run.input_tokens + run.max_output_tokens <= model.context_window


async def test_and_is_folded_into_one_that_fits(chat: Chat, model: Model, scripted: Callable[[str], None]) -> None:
    async with conversing(chat, model) as conversation:
        await conversation.do(lambda: Summary.objects.create(chat=chat, epoch=1, upto=0, text="Before. " * 600))
        await conversation.do(lambda: talk(chat, 2))
        await conversation.turn("And now?")
        fold = await conversation.background(Run.Kind.SUMMARY)
        after = await conversation.turn("Go on?")

    assert len(conversation.prompt_of(fold)) + fold.max_output_tokens <= model.context_window
    assert (after.epoch, after.left_out) == (2, 0)


async def test_a_long_system_prompt_does_not_fold_each_turn(
    chat: Chat, model: Model, scripted: Callable[[str], None]
) -> None:
    model.system_prompt = "You are kind. " * 100
    folds = 0
    async with conversing(chat, model) as conversation:
        await conversation.do(model.save)
        for number in range(12):
            await conversation.turn(question(number))
            if await conversation.waiting(Run.Kind.SUMMARY):
                await conversation.background(Run.Kind.SUMMARY)
                folds += 1

    assert 1 <= folds <= 7


def test_an_answer_that_may_be_very_long_does_not_push_out_what_was_said(chat: Chat, model: Model, free: Tier) -> None:
    Tier.objects.filter(pk=free.pk).update(max_output_tokens=1000)
    model.max_output_tokens = 1000
    model.save()
    talk(chat, 6)
    chat.owner.refresh_from_db()
    run = services.ask(chat.owner, chat, services.Question("And now?", model))

    assert run.left_out == 0
    assert run.max_output_tokens == model.context_window - run.input_tokens
