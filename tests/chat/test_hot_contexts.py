"""The ids of a chat so far: kept, found again where they hold, and the same without."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from django.conf import LazySettings
from redis import Redis

from chat import context, hot_contexts, services
from chat.models import Chat, Message, Role, Run
from inference.scripted_engine import Script
from inference.tokens import Tokenizer
from scheduler.models import Model
from tests.acts import add_message
from tests.chat.conversing import Conversation, conversing
from tests.real_model import model_folder

pytestmark = pytest.mark.django_db(transaction=True)

# A token for each byte: tokenising its text comes to far fewer.
ODD = Script(
    tokens_per_s=5000, split_characters=True, text="Grüße, 世界! 👩‍👩‍👧‍👦 <|im_end|> and on.", prefix_caching=True
)
FORGETFUL = """
{%- for message in messages -%}
    {{ '<|im_start|>' + message.role + '\n' }}
    {%- if message.role == 'assistant' and not loop.last -%}
        {{ message.content.split(',')[-1] }}
    {%- else -%}
        {{ message.content }}
    {%- endif -%}
    {{ '<|im_end|>' + '\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}
"""


@pytest.fixture
def tokenised(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All text that is tokenised from here on."""
    found: list[str] = []
    encode = Tokenizer.encode_text

    def noting(tokenizer: Tokenizer, text: str) -> list[int]:
        found.append(text)
        return encode(tokenizer, text)

    monkeypatch.setattr(Tokenizer, "encode_text", noting)
    return found


def said_of(run: Run) -> list[int]:
    """The ids that its answer came in, by its row."""
    assert run.answer is not None
    return list(run.answer.token_ids or [])


async def next_ids(conversation: Conversation, content: str = "Next?") -> list[int]:
    chat, model = conversation.chat, conversation.model
    return list((await conversation.do(lambda: context.for_question(chat, model, content))).ids)


async def test_the_next_prompt_begins_with_the_ids_of_this_one_and_its_answer(chat: Chat, model: Model) -> None:
    async with conversing(chat, model, ODD) as conversation:
        first = await conversation.turn("Hi")
        second = await conversation.turn("Go on")

    begins = [*conversation.prompt_of(first), *said_of(first)]
    assert len(said_of(first)) == first.output_tokens > 40
    assert conversation.prompt_of(second)[: len(begins)] == begins
    assert len(conversation.prompt_of(second)) == second.input_tokens
    assert second.cached_tokens == len(begins) // 16 * 16


async def test_only_what_is_new_is_tokenised(chat: Chat, model: Model, tokenised: list[str]) -> None:
    async with conversing(chat, model, ODD) as conversation:
        for content in ("A first question", "A second question", "A third question"):
            await conversation.turn(content)
        tokenised.clear()
        await next_ids(conversation, "The fourth")

    assert "The fourth" in "".join(tokenised)
    assert "question" not in "".join(tokenised)
    assert ODD.text not in tokenised


@pytest.mark.parametrize("loss", ["expired", "mangled", "away"])
async def test_what_is_not_kept_is_made_anew_from_the_rows_to_the_same_ids(
    chat: Chat, model: Model, streams: Redis, settings: LazySettings, loss: str
) -> None:
    async with conversing(chat, model, ODD) as conversation:
        await conversation.turn("Hi")
        hot = await next_ids(conversation)
        key = hot_contexts.context_key(chat.pk)
        assert 0 < streams.ttl(key) <= hot_contexts.KEPT_S
        if loss == "expired":
            streams.delete(key)
        elif loss == "mangled":
            streams.set(key, b"x" * 50)
        else:
            settings.STREAMS_URL = "redis://127.0.0.1:1/0"
        assert await next_ids(conversation) == hot


@pytest.mark.parametrize("what", ["the system prompt", "an answer"])
async def test_what_is_kept_is_used_for_the_same_beginning_only(chat: Chat, model: Model, what: str) -> None:
    async with conversing(chat, model, ODD) as conversation:
        await conversation.turn("Hi")
        if what == "an answer":
            other = {"content": "Quite another.", "token_ids": None}
            answers = Message.objects.filter(chat=chat, role=Role.ASSISTANT)
            await conversation.do(lambda: answers.update(**other))
        else:
            model.system_prompt = "Be brief."
        found = conversation.text(await next_ids(conversation))

    assert ("Quite another." in found) == (what == "an answer")
    assert ("Be brief." in found) == (what == "the system prompt")
    assert (str(ODD.text) in found) == (what == "the system prompt")


async def test_a_template_that_changes_earlier_turns_is_found_out(chat: Chat, model: Model, tmp_path: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        shutil.copy(model_folder() / name, tmp_path)
    (tmp_path / "chat_template.jinja").write_text(FORGETFUL)
    model.source = str(tmp_path)
    async with conversing(chat, model, ODD) as conversation:
        await conversation.do(model.save)
        await conversation.turn("Hi")
        second = await conversation.turn("Go on")

    shown = conversation.text(conversation.prompt_of(second))
    assert "Grüße" not in shown
    assert "and on." in shown
    assert len(conversation.prompt_of(second)) == second.input_tokens


def test_ids_of_another_tokenizer_are_not_believed(chat: Chat, model: Model) -> None:
    add_message(chat, Role.USER, "Hi")
    answer = add_message(chat, Role.ASSISTANT, "Hello there")
    expected = context.for_question(chat, model, "Next?").ids
    for stranger in ([5, 6, 7], [10**6], list(Tokenizer.load(model.source).eos_ids)):
        Message.objects.filter(pk=answer.pk).update(token_ids=stranger)
        assert context.for_question(chat, model, "Next?").ids == expected


async def test_a_deleted_chat_leaves_nothing(chat: Chat, model: Model, streams: Redis) -> None:
    key = hot_contexts.context_key(chat.pk)
    async with conversing(chat, model, ODD) as conversation:
        await conversation.turn("Hi")
        assert streams.exists(key)
        await conversation.do(lambda: services.delete(chat.owner, chat))

    assert not streams.exists(key)
