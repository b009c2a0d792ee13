"""What a chat's next prompt would be made of, for whoever wants to know why it is as long, or computed anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from chat import context, folding, hot_contexts
from chat.context import Layout, Prompt
from chat.models import Chat, Role
from chat.past import Past
from inference.rendering import Answer
from inference.tokens import Tokenizer, Turn
from scheduler import admission
from scheduler.models import Model

SYSTEM_PROMPT, SUMMARY = "system prompt", "summary"
AS_GIVEN = "as the model gave them"
FROM_TEXT = "from its text"


class NoModel(Exception):
    """Nothing was said in the chat yet, and no model is the default one."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a prompt: how many of its tokens, how they come about, and its text."""

    name: str
    tokens: int = 0
    note: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Inspection:
    """A prompt by parts, whose tokens add up to its own, and what is known of it besides."""

    model: Model
    prompt: Prompt
    parts: Sequence[Part]
    answer_tokens: int
    fold_from: int
    hot: str
    takes_turns_as_they_are: bool

    @property
    def left(self) -> int:
        """What the prompt leaves of the window."""
        return self.model.context_window - len(self.prompt.ids)

    @property
    def fold(self) -> str:
        """When the oldest turns are folded."""
        if self.prompt.layout.left_out:
            return "behind the next answer: messages are left out"
        return (
            f"behind an answer with which it passes {self.fold_from} tokens: system prompt and summary, and"
            f" {folding.FOLD_FROM_PERCENT} % of what these and the answer leave; this prompt has {len(self.prompt.ids)}"
        )


@dataclass(frozen=True, slots=True)
class _Source:
    """What the template is given of one message, or of what stands for one."""

    name: str
    role: str
    content: str
    token_ids: Sequence[int] | None = None
    note: str = ""


def model_of(chat: Chat) -> Model:
    """The one that answered last, else the default one. Raises `NoModel`."""
    last = Past.of(chat.pk, "").last
    found = Model.objects.filter(pk=last.model) if last else Model.objects.filter(is_default=True)
    if model := found.first():
        return model
    raise NoModel


def inspect(chat: Chat, model: Model, question: str) -> Inspection:
    """The prompt that a question would make now. Raises `TokensError`."""
    answer_tokens = admission.longest_answer(model, chat.owner.limits, None)
    past = Past.of(chat.pk, model.pk).asked(question)
    prompt, tokenizer = context.laid_out(past, model, answer_tokens), model.tokenizer
    turns = context.turns(past, model, prompt.layout)
    return Inspection(
        model,
        prompt,
        _parts(past, model, prompt, turns),
        answer_tokens,
        folding.Room.of(past.epoch, model, answer_tokens).fold_from,
        _hot(chat, model, prompt),
        _takes_turns_as_they_are(tokenizer, prompt, turns),
    )


def _parts(past: Past, model: Model, prompt: Prompt, turns: Sequence[Turn]) -> Sequence[Part]:
    """The template has what the others leave."""
    sources = _sources(past, model, prompt)
    found = {part.name: part for part in _contents(model.tokenizer, sources, prompt, turns)}
    around = len(prompt.ids) - sum(part.tokens for part in found.values())
    system, summary = (found.pop(name, Part(name, note="none")) for name in (SYSTEM_PROMPT, SUMMARY))
    left_out = Part("left out", note=_left_out(prompt.layout))
    return [system, summary, left_out, *found.values(), Part("template", around, "around them, and between")]


def _left_out(layout: Layout) -> str:
    before = layout.first_position - 1
    return f"{layout.left_out} messages, {before - layout.left_out + 1} to {before}" if layout.left_out else "none"


def _sources(past: Past, model: Model, prompt: Prompt) -> Iterator[_Source]:
    if model.system_prompt:
        yield _Source(SYSTEM_PROMPT, "system", model.system_prompt)
    if prompt.layout.epoch:
        epoch = past.epoch
        text = context.SUMMARY.format(text=epoch.text)
        yield _Source(SUMMARY, Role.USER, text, note=f"epoch {epoch.number}, up to message {epoch.upto}")
    for line in past.lines:
        if line.position >= prompt.layout.first_position:
            is_asked = line.position == prompt.position
            name = "question" if is_asked else f"message {line.position}, {line.role}"
            yield _Source(name, line.role, line.content, line.token_ids)


def _contents(
    tokenizer: Tokenizer, sources: Iterator[_Source], prompt: Prompt, turns: Sequence[Turn]
) -> Iterator[Part]:
    """Neighbours of one role are one turn, as `context.alternating` has it."""
    as_rendered = tokenizer.contents(turns)
    splices = any(isinstance(piece, Answer) for piece in prompt.rendering.pieces)
    for content, (_, group) in zip(as_rendered, groupby(sources, key=lambda source: source.role), strict=True):
        together = list(group)
        for source in together:
            yield _part(tokenizer, source, content, is_alone=len(together) == 1, splices=splices)


def _part(tokenizer: Tokenizer, source: _Source, content: str | None, *, is_alone: bool, splices: bool) -> Part:
    if content is None:
        return Part(source.name, 0, "the template changes it: counted there", source.content)
    if source.role != Role.ASSISTANT:
        # What the template trims is no part of it. Between neighbours nothing is.
        text = source.content.strip() if is_alone and content != source.content else source.content
        return Part(source.name, tokenizer.count(text), source.note or FROM_TEXT, source.content)
    if why := _why_anew(tokenizer, source, is_alone=is_alone, splices=splices):
        return Part(source.name, tokenizer.count(content if is_alone else source.content), why, source.content)
    return Part(source.name, len(source.token_ids or ()), AS_GIVEN, source.content)


def _why_anew(tokenizer: Tokenizer, source: _Source, *, is_alone: bool, splices: bool) -> str:
    """Why an answer is not in the prompt as its model gave it; empty where it is."""
    reasons = {
        "its ids were not stored": not source.token_ids,
        "this tokenizer has to see a text as a whole": not tokenizer.is_byte_level,
        "joined with its neighbour": not is_alone,
        "its ids are not this model's": not tokenizer.stands_for(source.token_ids or (), source.content),
        "the template changes an answer": not splices,
    }
    return next((f"tokenised anew: {reason}" for reason, holds in reasons.items() if holds), "")


def _hot(chat: Chat, model: Model, prompt: Prompt) -> str:
    kept = hot_contexts.read(chat.pk)
    if kept is None:
        return "none"
    is_hit = model.tokenizer.is_byte_level and kept.rest_of(prompt.rendering, model) is not None
    return f"{'hit' if is_hit else 'miss'}, {len(kept.ids)} tokens kept"


def _takes_turns_as_they_are(tokenizer: Tokenizer, prompt: Prompt, turns: Sequence[Turn]) -> bool:
    """Whether the turn behind this one begins with all of it, by the template and what was really said."""
    answer = Answer("Yes", tokenizer.encode_text("Yes"))
    said = prompt.rendering.answered(answer)
    following = [Turn(Role.ASSISTANT, answer.text, answer.token_ids), Turn(Role.USER, "And?")]
    divided = tokenizer.render([*turns, *following]).cut(said.controls)
    return divided is not None and divided[0].digest(b"") == said.digest(b"")
