"""Runs and the versions of their model: which one serves them, and what is another's is not taken for its own."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from chat import context, hot_contexts, services
from chat.models import Chat, Role, Run, Status
from chat.serving import Served
from inference.host import ServedModel
from inference.scripted_engine import Script
from inference.stream_writer import StreamWriter
from inference.streams import Delta, Reset
from inference.tokens import Tokenizer
from scheduler.models import Model, ModelVersion
from tests.acts import add_message
from tests.chat.conversing import conversing
from tests.chat.generating import Worker, endings_of, told_text, working
from tests.real_model import model_folder

pytestmark = pytest.mark.django_db(transaction=True)

TEXT = "Grüße, 世界! سلام دنیا and on and on."
FAST = Script(text=TEXT, tokens_per_s=5000)
SPLIT = Script(text=TEXT, tokens_per_s=5000, split_characters=True)


def version(model: Model, context_window: int = 2048) -> ModelVersion:
    return ModelVersion.objects.create(model=model, source=model.source, context_window=context_window)


@pytest.fixture
def versions(model: Model) -> tuple[ModelVersion, ModelVersion]:
    return version(model), version(model)


@pytest.fixture
def small(model: Model) -> ModelVersion:
    return version(model, context_window=256)


@pytest.fixture
def run(new_run: Callable[..., Run]) -> Run:
    return new_run()


def served(version: ModelVersion) -> ServedModel:
    return ServedModel(version.model_id, version.source, version.context_window, {}, version.pk)


async def first_attempt(worker: Worker, run: Run, version: ModelVersion, characters: int) -> None:
    """A worker of that version told so much of the text, a byte a token, and is heard of no more."""
    tokenizer = Tokenizer.load(model_folder())
    claim = await worker.ask_rows(lambda: Run.objects.claim(run.pk, "dead", timedelta(0), version=version.pk))
    async with StreamWriter(worker.redis) as writer:
        stream = await writer.open(run.pk, claim.attempt, run.model_id)
        for character in TEXT[:characters]:
            stream.push(character, tokenizer.encode_bytes(character))
        await stream.flush()


async def test_a_run_says_which_version_served_it(run: Run, versions: tuple[ModelVersion, ModelVersion]) -> None:
    first, _ = versions
    async with working(FAST, served=served(first)) as worker:
        await worker.attempts.run(run.pk)
        assert (await worker.row(run)).version_id == first.pk


async def test_another_version_goes_on_with_the_text_in_its_own_ids(
    run: Run, versions: tuple[ModelVersion, ModelVersion]
) -> None:
    first, second = versions
    async with working(FAST, served=served(second)) as worker:
        await first_attempt(worker, run, first, characters=9)
        await worker.attempts.run(run.pk)
        row, entries = await worker.row(run), await worker.entries(run)

    assert (row.status, row.version_id, row.attempt) == (Status.DONE, second.pk, 2)
    assert row.answer
    assert row.answer.content == told_text(entries) == TEXT
    events = [entry.event for entry in entries if entry.id.attempt == 2]
    assert Reset(0) in events
    ids = [id_ for event in events if isinstance(event, Delta) for id_ in event.token_ids]
    assert ids[:4] == Tokenizer.load(model_folder()).encode_text(TEXT[:9])[:4]
    assert list(row.answer.token_ids or []) == ids, "ids of two versions in one answer"
    [ended] = endings_of(entries)
    assert ended.data["chars"] == len(TEXT)


async def test_the_same_version_goes_on_with_the_ids_that_are_there(
    run: Run, versions: tuple[ModelVersion, ModelVersion]
) -> None:
    first, _ = versions
    async with working(SPLIT, served=served(first)) as worker:
        await first_attempt(worker, run, first, characters=9)
        await worker.attempts.run(run.pk)
        row, entries = await worker.row(run), await worker.entries(run)

    assert Reset(9) in [entry.event for entry in entries if entry.id.attempt == 2]
    assert row.answer
    assert list(row.answer.token_ids or []) == Tokenizer.load(model_folder()).encode_bytes(TEXT)


async def test_a_hot_context_and_a_warm_worker_are_the_versions_own(
    chat: Chat, model: Model, versions: tuple[ModelVersion, ModelVersion]
) -> None:
    first, second = versions
    async with conversing(chat, model, SPLIT, served=served(first)) as conversation:
        model.version_id = first.pk
        run = await conversation.turn("Hi")
        own = await conversation.do(lambda: context.for_question(chat, model, "And?"))
        model.version_id = second.pk
        others = await conversation.do(lambda: context.for_question(chat, model, "And?"))
        kept = hot_contexts.read(chat.pk)

    assert (own.warm_worker, others.warm_worker) == (run.worker, "")
    assert kept is not None
    model.version_id = first.pk
    assert kept.rest_of(own.rendering, model) is not None
    model.version_id = second.pk
    assert kept.rest_of(own.rendering, model) is None
    assert others.ids == own.ids, "what is rebuilt is the same text, of the same rows"


async def test_what_was_asked_for_a_larger_window_loses_its_oldest_turns(
    chat: Chat, model: Model, small: ModelVersion
) -> None:

    def asked() -> Run:
        for number in range(20):
            add_message(chat, Role.USER if number % 2 == 0 else Role.ASSISTANT, f"Message {number}: " + "word " * 20)
        return services.ask(chat.owner, chat, services.Question("The last?", model, 32))

    async with working(Script(text=TEXT, context_window=256), served=served(small)) as worker:
        run = await worker.ask_rows(asked)
        assert (run.input_tokens > 256, run.left_out) == (True, 0)
        await worker.attempts.run(run.pk)
        row = await worker.row(run)

    assert (row.status, row.finish_reason) == (Status.DONE, "stop")
    assert row.left_out > 0
    assert row.input_tokens < 256


def test_a_row_shows_the_version_that_is_served_here(model: Model, small: ModelVersion) -> None:
    Served(small.pk, model_folder(), 256).show(model)
    assert (model.version_id, model.context_window, model.tokenizer.vocab_size > 0) == (small.pk, 256, True)
    assert Model.objects.get().context_window == 2048
