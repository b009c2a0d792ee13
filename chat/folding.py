"""Folding: the oldest turns of a long chat become the next epoch of its summary, in the background, between turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from chat import context
from chat.context import Layout, Prompt
from chat.models import Message, Role, Run, Summary
from chat.past import Epoch, Line, Past, lines, starts
from chat.said import said
from scheduler.admission import room_for_answer
from scheduler.models import Model

# Of the window without the answer and what each prompt has, system prompt and summary: beyond so much turns are folded,
# and so much stays word for word. Between the two lie the turns from one epoch to the next, which changes the prefix.
FOLD_FROM_PERCENT = 60
VERBATIM_PERCENT = 25
# Of the window, for the summary itself.
SUMMARY_PERCENT = 8
MOST_SUMMARY_TOKENS = 768
# Behind the turns that are folded: all before it is in the prefix cache.
ASK = (
    "Sum up the conversation so far, so that you can go on with it when you no longer see it: who is who, names, "
    "numbers, dates, what was decided, what is open, what was asked for and how. Keep what its summary at the "
    "beginning says, if there is one. Be brief and exact. Write the summary and nothing else."
)
GAP = "\n[…]\n"


def due(reply: Run) -> Run | None:
    """The run that folds, not stored, behind a reply; None where that is not long enough, or nothing can be folded."""
    tokens = reply.input_tokens + reply.output_tokens
    if not reply.left_out and tokens <= Room.without_fixed(reply.model, reply.max_output_tokens).fold_from:
        return None  # most replies: nothing is read for them
    if Run.objects.live().filter(chat=reply.chat_id, kind=Run.Kind.SUMMARY).exists():
        return None
    past = _past(reply)
    room = Room.of(past.epoch, reply.model, reply.max_output_tokens)
    if past.epoch.number > reply.epoch and not room.is_crowded:
        return None  # a fold ended while it was written: the next prompt is a shorter one
    if not reply.left_out and tokens <= room.fold_from:
        return None
    upto = _last_folded(past, reply.model, room.verbatim)
    message = Message.objects.standing().filter(chat=reply.chat_id, position=upto).first()
    if message is None or upto <= past.epoch.upto:
        return None
    run = Run(
        chat=reply.chat,
        prompt=message,
        kind=Run.Kind.SUMMARY,
        model=reply.model,
        tier_id=reply.tier_id,
        epoch=past.epoch.number,
        first_position=past.epoch.upto + 1,
        max_output_tokens=_summary_tokens(reply.model),
        warm_worker=reply.worker,
        warm_tokens=reply.input_tokens + reply.output_tokens,
    )
    run.input_tokens = len(prompt(run).ids)
    return run


@dataclass(frozen=True, slots=True)
class Room:
    """A window without the answer: `fixed` tokens of system prompt and summary, and what is left for turns."""

    fixed: int
    turns: int

    @classmethod
    def of(cls, epoch: Epoch, model: Model, max_output_tokens: int) -> Self:
        """Behind an epoch's summary."""
        tokenizer, whole = model.tokenizer, cls.without_fixed(model, max_output_tokens).turns
        fixed = tokenizer.count(model.system_prompt) + tokenizer.count(epoch.text)
        return cls(fixed, max(1, whole - fixed))

    @classmethod
    def without_fixed(cls, model: Model, max_output_tokens: int) -> Self:
        """As if there were neither: a fold is due no earlier than by this."""
        return cls(0, model.context_window - room_for_answer(model, max_output_tokens))

    @property
    def is_crowded(self) -> bool:
        """Whether system prompt and summary leave turns the lesser part: a summary made for a larger window."""
        return self.fixed > self.turns

    @property
    def fold_from(self) -> int:
        """So many tokens of a prompt and its answer need no fold."""
        return self.fixed + self.turns * FOLD_FROM_PERCENT // 100

    @property
    def verbatim(self) -> int:
        """So many of the turns are left by one."""
        return self.turns * VERBATIM_PERCENT // 100


def prompt(run: Run) -> Prompt:
    """The summary so far, the turns that are folded, and what is asked of the model."""
    past = _past(run)
    folded = [line for line in past.lines if line.position <= run.prompt.position]
    return _fitting(replace(past, lines=folded), run.model)


def prefix(run: Run, text: str) -> Sequence[int]:
    """What the prompts of the new epoch begin with: the summary and the turns behind it."""
    said = lines(run.chat_id, run.prompt.position + 1)
    while said and said[-1].role == Role.USER:
        said.pop()  # a turn under way
    past = Past(run.chat_id, said, Epoch(run.epoch + 1, run.prompt.position, text.strip()))
    tokenizer, layout = run.model.tokenizer, Layout(run.epoch + 1, run.prompt.position + 1)
    return tokenizer.encode_chat(context.turns(past, run.model, layout), add_generation_prompt=False)


def accept(run: Run, text: str, warm_tokens: int) -> bool:
    """Store the new epoch: the next question's prompt begins with it. False for a text that says nothing."""
    summary = said(text)
    if summary:
        Summary.objects.create(
            chat_id=run.chat_id,
            epoch=run.epoch + 1,
            upto=run.prompt.position,
            text=summary,
            run=run,
            warm_tokens=warm_tokens,
        )
    return bool(summary)


def told(_run: Run) -> None:
    """Nobody sees it."""


def _past(run: Run) -> Past:
    """All behind the latest epoch, what prompts had no room for included."""
    past = Past.of(run.chat_id, run.model_id)
    return replace(past, lines=lines(run.chat_id, past.epoch.upto + 1))


def _last_folded(past: Past, model: Model, verbatim_tokens: int) -> int:
    """The position up to which to fold: what is behind it has so many tokens at most, but for the last question."""
    tokenizer, questions = model.tokenizer, starts(past.lines)
    kept, first_kept = 0, questions[-1] if questions else 1
    for line in reversed(past.lines):
        kept += len(line.token_ids) if line.token_ids else tokenizer.count(line.content)
        if kept > verbatim_tokens:
            break
        if line.role == Role.USER:
            first_kept = line.position
    return _most_that_fits(past, model, [start - 1 for start in questions if past.epoch.upto + 1 < start <= first_kept])


def _most_that_fits(past: Past, model: Model, ends: Sequence[int]) -> int:
    """The last of the positions up to which all can be folded at once; the first where it must be shortened."""
    low, high = 0, len(ends) - 1
    while low < high:
        middle = (low + high + 1) // 2
        some = replace(past, lines=[line for line in past.lines if line.position <= ends[middle]])
        if len(_built(_asked(some), model).ids) <= _most(model):
            low = middle
        else:
            high = middle - 1
    return ends[low] if ends else 0


def _fitting(past: Past, model: Model) -> Prompt:
    """As it is; where a single exchange is too long, or a summary of another window, they are cut in the middle."""
    built = _built(_asked(past), model)
    most_chars = max(len(text) for text in (past.epoch.text, *(line.content for line in past.lines)))
    while len(built.ids) > _most(model) and most_chars > 1:
        most_chars //= 2
        shorter = replace(past.epoch, text=_cut(past.epoch.text, most_chars))
        lines_cut = [_shortened(line, most_chars) for line in past.lines]
        built = _built(_asked(replace(past, epoch=shorter, lines=lines_cut)), model)
    return built


def _asked(past: Past) -> Past:
    position = past.lines[-1].position if past.lines else past.epoch.upto
    return replace(past, lines=[*past.lines, Line(position + 1, Role.USER, ASK)])


def _built(past: Past, model: Model) -> Prompt:
    return context.build(past, model, Layout(past.epoch.number, past.epoch.upto + 1))


def _shortened(line: Line, most_chars: int) -> Line:
    if len(line.content) <= most_chars:
        return line
    return Line(line.position, line.role, _cut(line.content, most_chars))


def _cut(text: str, most_chars: int) -> str:
    half = most_chars // 2
    return text if len(text) <= most_chars else f"{text[:half]}{GAP}{text[len(text) - half :]}"


def _most(model: Model) -> int:
    return model.context_window - _summary_tokens(model)


def _summary_tokens(model: Model) -> int:
    return max(1, min(MOST_SUMMARY_TOKENS, model.context_window * SUMMARY_PERCENT // 100))
