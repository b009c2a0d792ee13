"""Which tokens a prompt is made of: system prompt, a summary of what is long past, the recent turns word for word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from chat import hot_contexts
from chat.models import Chat, Message, Role, Run, Summary
from chat.past import Line, Past, epoch, lines, starts
from chat.wishes import Wishes
from inference.rendering import Rendering
from inference.tokens import Tokenizer, Turn
from scheduler.models import Model

# Where the turns since the summary have outgrown the window, so much of it is left to them: not the most that fits, or
# each turn would drop another one and be computed from its beginning.
KEPT_PERCENT = 50
# In a user's turn, not in the system's: what was said has no authority of its own. Every template takes one.
SUMMARY = "[Earlier in this conversation, in short:\n{text}\nThe conversation goes on from there.]"


@dataclass(frozen=True, slots=True)
class Layout:
    """What a prompt holds of its chat: the summary of that epoch, 0 for none, and the messages from a position on.

    `left_out` is how many messages are in neither.
    """

    epoch: int = 0
    first_position: int = 1
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt's ids and the rendering they come from, its question's position, and what it holds of the chat.

    `warm_worker`, where there is one, has `warm_tokens` of the chat's own in its prefix cache. `system` is what it
    begins with where that is not the model's own.
    """

    ids: Sequence[int]
    rendering: Rendering
    position: int
    layout: Layout
    warm_worker: str = ""
    warm_tokens: int = 0
    system: str | None = None


def for_question(chat: Chat, model: Model, content: str, answer_tokens: int = 0) -> Prompt:
    """The prompt that `content` would make as the chat's next message, with room for the answer. Raises `TokensError`.

    Where that cannot be, it is the shortest that there is.
    """
    return laid_out(Past.of(chat.pk, model.pk).asked(content), model, answer_tokens)


def for_another(run: Run, model: Model, answer_tokens: int = 0) -> Prompt:
    """The prompt that answers the question of `run` again. Raises `Message.DoesNotExist` when it was deleted.

    And `TokensError`.
    """
    return laid_out(past_of(run, model.pk), model, answer_tokens)


def past_of(run: Run, model: str) -> Past:
    """What was said up to the question of `run`; see `Past.of`. Raises `Message.DoesNotExist` when it was deleted."""
    past = Past.of(run.chat_id, model, before=run.prompt.position + 1)
    if not past.lines:
        raise Message.DoesNotExist
    return replace(past, system=Wishes.of(run).system_prompt)


def for_run(run: Run) -> Prompt:
    """The prompt of a stored run: the same ids that were counted when it was asked.

    Raises `Message.DoesNotExist` when its chat was deleted, `TokensError`.
    """
    layout = Layout(run.epoch, run.first_position, run.left_out)
    said = lines(run.chat_id, run.first_position, before=run.prompt.position + 1)
    try:
        summed_up = epoch(run.chat_id, run.epoch)
    except Summary.DoesNotExist as gone:
        raise Message.DoesNotExist from gone
    if not said:
        raise Message.DoesNotExist
    return build(Past(run.chat_id, said, summed_up, system=Wishes.of(run).system_prompt), run.model, layout)


def for_run_of_another_version(run: Run) -> Prompt:
    """The same, counted anew: tokens may be others, and where the window is smaller the oldest turns are left out.

    The row tells of it, since pages do, and so that the next attempt makes the same. Raises as `for_run`.
    """
    prompt = for_run(run)
    if len(prompt.ids) >= run.model.context_window:
        prompt = for_another(run, run.model, run.max_output_tokens)
    layout, run.input_tokens = prompt.layout, len(prompt.ids)
    placed = {"epoch": layout.epoch, "first_position": layout.first_position, "left_out": layout.left_out}
    Run.objects.filter(pk=run.pk).update(input_tokens=run.input_tokens, **placed)
    return prompt


def build(past: Past, model: Model, layout: Layout) -> Prompt:
    """The prompt of that layout, ready for an answer. Raises `TokensError`."""
    tokenizer, spoken = model.tokenizer, turns(past, model, layout)
    rendering = tokenizer.render(spoken)
    if not tokenizer.is_byte_level:
        ids: Sequence[int] = tokenizer.encode_chat(spoken)
    elif any(turn.role == Role.ASSISTANT for turn in spoken):
        ids = hot_contexts.encoded(past.chat_id, model, rendering)
    else:
        ids = tokenizer.encode(rendering)
    return Prompt(ids, rendering, past.position, layout, *_warmth(past, model, layout, len(ids)), past.system)


def turns(past: Past, model: Model, layout: Layout) -> list[Turn]:
    """What the chat template is given."""
    system = [Turn("system", prompt)] if (prompt := system_prompt(past, model)) else []
    opening = [Turn(Role.USER, SUMMARY.format(text=past.epoch.text))] if layout.epoch else []
    recent = (line for line in past.lines if line.position >= layout.first_position)
    return [*system, *alternating([*opening, *map(_turn, recent)])]


def system_prompt(past: Past, model: Model) -> str:
    """What the prompt begins with: the model's own where nobody wished for another."""
    return model.system_prompt if past.system is None else past.system


def alternating(spoken: Iterable[Turn]) -> list[Turn]:
    """One turn for neighbours of the same role: a question whose run left no answer is asked together with the next.

    Dropping it would hide from the model what the reader sees, and strict templates refuse two user turns in a row.
    """
    merged: list[Turn] = []
    for turn in spoken:
        if merged and merged[-1].role == turn.role:
            turn = Turn(turn.role, f"{merged.pop().content}\n\n{turn.content}")  # noqa: PLW2901
        merged.append(turn)
    return merged


def layouts(past: Past, *, with_summary: bool = True) -> list[Layout]:
    """What a prompt may hold, the most first: all behind the summary, or from a later question on."""
    if with_summary:
        epoch, upto = past.epoch.number, past.epoch.upto
        return [Layout(epoch, start, start - upto - 1) for start in _beginnings(past)]
    # A summary that covers no message of this chat, since it began with it, counts as one.
    return [Layout(0, start, max(1, start - 1)) for start in _beginnings(past)]


def _beginnings(past: Past) -> list[int]:
    """Where a prompt may begin: with all, whoever spoke first, or at a later question."""
    first = past.lines[0].position
    return [first, *(start for start in starts(past.lines) if start > first)]


def laid_out(past: Past, model: Model, answer_tokens: int) -> Prompt:
    """All that there is, if the answer has room; else so much less that the next turns have, too; else the question."""
    room = max(1, model.context_window - max(1, answer_tokens))
    found = layouts(past)
    prompt = build(past, model, found[0])
    if len(prompt.ids) <= room:
        return prompt
    # A summary that another model's window had room for may be too long for this one's.
    without = layouts(past, with_summary=False) if past.epoch.number else []
    for some in filter(None, (found, without)):
        for most in (room * KEPT_PERCENT // 100, room):
            prompt = _longest(past, model, some, most)
            if len(prompt.ids) <= most:
                return prompt
    return build(past, model, without[-1] if without else found[-1])


def _longest(past: Past, model: Model, found: Sequence[Layout], most: int) -> Prompt:
    """Of at most so many tokens, or the shortest that there is. By halves: each layout comes to less than the last."""
    low, high = 0, len(found) - 1
    while low < high:
        middle = (low + high) // 2
        if len(build(past, model, found[middle]).ids) <= most:
            high = middle
        else:
            low = middle + 1
    return build(past, model, found[low])


def _turn(line: Line) -> Turn:
    return Turn(line.role, line.content, line.token_ids)


def _warmth(past: Past, model: Model, layout: Layout, tokens: int) -> tuple[str, int]:
    """Who has computed the beginning of such a prompt, and how much of it beyond the system prompt, which all have."""
    last, epoch = past.last, past.epoch
    place = (model.pk, model.version_id, layout.epoch, layout.first_position)
    if last and (last.model, last.version, last.epoch, last.first_position) == place:
        worker, warm = last.worker, last.tokens
    elif (epoch.model, epoch.version, epoch.number, epoch.upto + 1) == place:
        worker, warm = epoch.worker, epoch.warm_tokens
    else:
        return "", 0
    own = min(warm, tokens) - _system_tokens(model.tokenizer, system_prompt(past, model))
    return worker, max(0, own) if worker else 0


@lru_cache
def _system_tokens(tokenizer: Tokenizer, system_prompt: str) -> int:
    return tokenizer.count(system_prompt)
