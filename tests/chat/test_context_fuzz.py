"""Prompts of random chats: within the window, nothing of a text a template's token, and the ids of transformers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as product
from django.db import transaction
from django.utils import timezone

from chat import context, hot_contexts, problems, services, submission
from chat.context import SUMMARY, Layout, Prompt
from chat.models import Chat, Message, Run, Status, Summary, User
from chat.past import Line, Past
from inference.rendering import Answer
from inference.tokens import Tokenizer, Turn
from scheduler import dispensable
from scheduler.models import Model
from tests.chat.random_chats import Author, RandomChat
from tests.long_form import times
from tests.real_model import model_folder

ROOT = Path(__file__).resolve().parents[2]
CHATS = times(120, long=5000)
BATCH = 40  # the rows of one are gone before the next
DEFAULT_SYSTEM_PROMPT = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


class Reference:
    """transformers, in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin
        assert process.stdout
        self._questions, self._answers = process.stdin, process.stdout

    def encode(self, turns: Sequence[Turn]) -> dict[str, Any]:
        """What `tests.inference.reference_prompts` says."""
        self._questions.write(f"{json.dumps([asdict(turn) for turn in turns])}\n")
        self._questions.flush()
        answer: dict[str, Any] = json.loads(self._answers.readline())
        return answer


@pytest.fixture(scope="module")
def reference() -> Iterator[Reference]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.inference.reference_prompts", str(model_folder())]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Reference(process)
        process.stdin.close()  # type: ignore[union-attr] # its end


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # A Redis that is slow, on a machine with other things to do, would count as away.
    monkeypatch.setattr(dispensable, "PATIENCE_S", 60)
    patient = dispensable.DispensableRedis(product.STREAMS_URL)
    monkeypatch.setattr(hot_contexts, "shared", lambda _: patient)
    yield
    patient.client.close()


@pytest.fixture
def other_model(model: Model) -> Model:
    return Model.objects.create(slug=f"{model.slug}-other", name="Other", source=model.source, context_window=2048)


@dataclass(frozen=True)
class Asked:
    """A stored chat, what is asked in it, and the prompt that this makes."""

    made_up: RandomChat
    user: User
    chat: Chat
    model: Model
    prompt: Prompt
    reference: Reference

    @property
    def ids(self) -> list[int]:
        return list(self.prompt.ids)

    @property
    def fits(self) -> bool:
        return len(self.ids) < self.model.context_window

    @property
    def room(self) -> int:
        """For the prompt, beside the longest answer."""
        return max(1, self.model.context_window - max(1, self.made_up.answer_tokens))

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer.load(self.model.source)

    @cached_property
    def lines(self) -> Sequence[Line]:
        """All that was ever said, the question too."""
        said = self.made_up.lines
        return [*said, Line(self.position, "user", self.made_up.question)]

    @property
    def position(self) -> int:
        """Of the question."""
        return 1 + max(self.made_up.epoch.upto, len(self.made_up.lines))

    def turns(self, layout: Layout) -> list[Turn]:
        """What such a prompt is to hold, by the rows."""
        said = [Line(0, "user", SUMMARY.format(text=self.made_up.epoch.text))] if layout.epoch else []
        said += [line for line in self.lines if line.position >= layout.first_position]
        turns = [Turn("system", self.model.system_prompt)] if self.model.system_prompt else []
        for line in said:
            if turns and turns[-1].role == line.role:
                turns[-1] = Turn(line.role, f"{turns[-1].content}\n\n{line.content}")
            else:
                turns.append(Turn(line.role, line.content, line.token_ids))
        return turns

    @cached_property
    def expected(self) -> list[Turn]:
        """What the prompt is to hold."""
        return self.turns(self.prompt.layout)

    def alone(self) -> int:
        """How long the question is with nothing of its chat."""
        return len(self.reference.encode(self.turns(Layout(0, self.position, self.position - 1)))["ids"])


def stored(made_up: RandomChat, user: User, model: Model, other_model: Model) -> Chat:
    """Its rows."""
    chat = Chat.objects.create(owner=user)
    rows = {line.position: row_of(chat, line) for line in made_up.lines}
    replaced = [row_of(chat, line, replaced_at=timezone.now()) for line in made_up.replaced]
    Message.objects.bulk_create([*rows.values(), *replaced])
    if made_up.epoch.number:
        epoch = made_up.epoch
        Summary.objects.create(chat=chat, epoch=epoch.number, upto=epoch.upto, text=epoch.text)
    if made_up.last:
        store_last(made_up, chat, rows, {row.pk: row for row in (model, other_model)}[made_up.last.model])
    return chat


def row_of(chat: Chat, line: Line, **columns: Any) -> Message:
    return Message(chat=chat, token_count=1, **columns_of(line), **columns)


def columns_of(line: Line) -> dict[str, Any]:
    return {"position": line.position, "role": line.role, "content": line.content, "token_ids": line.token_ids}


def store_last(made_up: RandomChat, chat: Chat, rows: dict[int, Message], model: Model) -> None:
    """The run of the last question."""
    assert made_up.last
    question = max(position for position, row in rows.items() if row.role == "user")
    layout = Layout(made_up.last.epoch, made_up.last.first_position)
    store_run(chat, rows[question], model, layout, rows.get(question + 1), worker=made_up.last.worker)


def store_run(chat: Chat, question: Message, model: Model, layout: Layout, answer: Message | None, **more: Any) -> Run:
    """One that ended, with an answer or without."""
    ended = {"status": Status.DONE if answer else Status.FAILED, "finished_at": timezone.now(), "answer": answer}
    counts = {"input_tokens": 30, "output_tokens": 10, "max_output_tokens": 10}
    columns = {**asdict(layout), **ended, **counts, **more}
    return Run.objects.create(chat=chat, prompt=question, model=model, tier=chat.owner.tier, **columns)


@contextmanager
def telling(seed: int) -> Iterator[None]:
    """Failures say which chat it was; its rows go."""
    try:
        with transaction.atomic():
            yield
            transaction.set_rollback(True)
    except Exception as failure:
        failure.add_note(f"seed {seed}")
        raise


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first_seed", range(0, CHATS, BATCH))
def test_prompts_of_random_chats_keep_what_they_promise(
    first_seed: int, alice: User, model: Model, other_model: Model, reference: Reference
) -> None:
    for seed in range(first_seed, min(first_seed + BATCH, CHATS)):
        with telling(seed):
            asked = ask(seed, alice, model, other_model, reference)
            it_fits_the_window(asked)
            what_is_left_out_had_no_room(asked)
            it_says_what_it_holds(asked)
            no_text_became_a_token_of_the_template(asked)
            every_kept_turn_comes_back_in_order(asked)
            the_ids_are_those_of_transformers(asked)
            if asked.fits:
                the_worker_gets_the_same_ids(asked)
                the_next_prompt_begins_with_this_one_hot_or_cold(asked)


def ask(seed: int, user: User, model: Model, other_model: Model, reference: Reference) -> Asked:
    made_up = Author(seed, Tokenizer.load(model.source)).chat(model.pk, other_model.pk)
    model.context_window, model.system_prompt = made_up.window, made_up.system_prompt
    chat = stored(made_up, user, model, other_model)
    prompt = context.for_question(chat, model, made_up.question, made_up.answer_tokens)
    return Asked(made_up, user, chat, model, prompt, reference)


def it_fits_the_window(asked: Asked) -> None:
    """With room for the answer, unless the question alone leaves none."""
    tokens, window = len(asked.ids), asked.model.context_window
    if tokens > asked.room:
        assert asked.alone() > asked.room
    if asked.fits:
        assert 1 <= submission.output_cap(asked.user, asked.model, asked.prompt, None) <= window - tokens
        return
    assert tokens == asked.alone()
    with pytest.raises(problems.PromptTooLong) as refusal:
        services.ask(asked.user, asked.chat, services.Question(asked.made_up.question, asked.model))
    assert refusal.value.data == {"input_tokens": tokens, "context_window": window}


def what_is_left_out_had_no_room(asked: Asked) -> None:
    """All that the last prompt had was too long, and one question more than there is for half of the room."""
    past = Past.of(asked.chat.pk, asked.model.pk).asked(asked.made_up.question)
    found = context.layouts(past)
    if asked.prompt.layout == found[0]:
        return
    assert len(asked.tokenizer.encode_chat(asked.turns(found[0]))) > asked.room
    if asked.prompt.layout in found:
        longer = found[found.index(asked.prompt.layout) - 1]
        assert len(asked.tokenizer.encode_chat(asked.turns(longer))) > asked.room * context.KEPT_PERCENT // 100


def it_says_what_it_holds(asked: Asked) -> None:
    layout, epoch = asked.prompt.layout, asked.made_up.epoch
    assert layout.epoch in {0, epoch.number}
    assert asked.prompt.position == asked.position
    assert layout.first_position in {line.position for line in asked.lines if line.role == "user"}
    if layout.epoch or not epoch.number:
        assert layout.left_out == layout.first_position - 1 - (epoch.upto if layout.epoch else 0) >= 0
        return
    # A summary that has no room beside the question counts as a message, where it covers none of the chat.
    assert layout.left_out == max(1, layout.first_position - 1)
    past = Past.of(asked.chat.pk, asked.model.pk).asked(asked.made_up.question)
    assert len(asked.tokenizer.encode_chat(asked.turns(context.layouts(past)[-1]))) > asked.room


def no_text_became_a_token_of_the_template(asked: Asked) -> None:
    """The template writes two for a turn, and one to open the answer."""
    spoken = len(asked.expected) + (not asked.model.system_prompt)
    assert asked.tokenizer._controls.count_ids(asked.ids) == 2 * spoken + 1


def every_kept_turn_comes_back_in_order(asked: Asked) -> None:
    default = [] if asked.model.system_prompt else [Turn("system", DEFAULT_SYSTEM_PROMPT)]
    shown = [(turn.role, turn.content) for turn in [*default, *asked.expected]]
    parts = [asked.tokenizer.decode(part) for part in between_controls(asked)]
    assert parts[::2] == [*(spelt(asked, f"{role}\n{content}") for role, content in shown), "assistant\n"]
    assert set(parts[1::2]) == {"\n"}


def between_controls(asked: Asked) -> list[list[int]]:
    controls, parts = set(asked.tokenizer._controls._ids), list[list[int]]()
    for token_id in asked.ids:
        if token_id in controls:
            parts.append([])
        else:
            parts[-1].append(token_id)
    return parts


def spelt(asked: Asked, text: str) -> str:
    """Without the bytes that the model's vocabulary lacks."""
    return bytes(byte for byte in text.encode() if byte in asked.tokenizer._byte_ids).decode(errors="replace")


def the_ids_are_those_of_transformers(asked: Asked) -> None:
    theirs = asked.reference.encode(asked.expected)
    assert asked.ids == theirs["ids"]
    assert theirs["plain"] in (None, asked.ids)


def the_worker_gets_the_same_ids(asked: Asked) -> None:
    question = row_of(asked.chat, asked.lines[-1])
    question.save()
    run = store_run(asked.chat, question, asked.model, asked.prompt.layout, None)
    worked = context.for_run(run)
    assert list(worked.ids) == asked.ids
    assert (worked.position, worked.layout) == (asked.prompt.position, asked.prompt.layout)


def the_next_prompt_begins_with_this_one_hot_or_cold(asked: Asked) -> None:
    """Behind it comes the answer as the model gave it, unless something of it is another by then."""
    made_up, given = asked.made_up, Answer(asked.made_up.answer.content, asked.made_up.answer.token_ids or [])
    hot_contexts.keep(asked.chat.pk, asked.model, asked.prompt, given)
    row_of(asked.chat, replace(made_up.next_answer, position=asked.position + 1)).save()
    asked.model.system_prompt = made_up.next_system_prompt
    hot = asked_next(asked)
    is_kept = hot_contexts.read(asked.chat.pk) is not None
    hot_contexts.forget(asked.chat.pk)
    cold = asked_next(asked)

    assert list(hot.ids) == list(cold.ids)
    assert is_kept == asked.tokenizer.stands_for(given.token_ids, given.text)
    is_same = (made_up.answer, made_up.system_prompt) == (made_up.next_answer, made_up.next_system_prompt)
    if is_kept and is_same and hot.layout == asked.prompt.layout:
        begins_with = [*asked.ids, *given.token_ids]
        assert list(hot.ids[: len(begins_with)]) == begins_with


def asked_next(asked: Asked) -> Prompt:
    return context.for_question(asked.chat, asked.model, asked.made_up.next_question, asked.made_up.answer_tokens)
