"""What programs ask: with a conversation of their own in the request, or behind one that is kept here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from chat import content as rules
from chat import context, problems
from chat.auto import Asking, Chosen, LayOut
from chat.context import Layout
from chat.models import Chat, Message, Role, Run, Status, User
from chat.past import Past
from chat.submission import HistoryMoved, Submission, output_cap
from chat.wishes import Wishes, joined
from inference.tokens import TemplateRefused
from scheduler.auto import Pick
from scheduler.models import Model, RoutingRule

MOST_MESSAGES = 2000


class TooManyMessages(problems.Invalid):
    """More messages than one request may have."""

    code = "too_many_messages"
    title = "Too many messages"

    def __init__(self, count: int, limit: int) -> None:
        super().__init__(f"These are {count} messages; a request may have {limit}.", count=count, limit=limit)


class MessagesRefused(problems.Invalid):
    """The model's chat template does not take them, by their roles or their order."""

    code = "messages_refused"
    title = "Messages refused"
    detail = "This model's chat template does not take these messages. Let user and assistant speak by turns."


@dataclass(frozen=True, slots=True)
class Asked:
    """Messages, of which the model is to answer the last, and whether they are kept as a chat.

    With `rules` they are for Auto, as a `chat.services.Question` is.
    """

    messages: Sequence[tuple[Role, str]]
    model: Model
    wishes: Wishes = field(default_factory=Wishes)
    max_output_tokens: int | None = None
    is_kept: bool = False
    rules: Sequence[RoutingRule] = ()


def ask(user: User, asked: Asked, *, may_leave_out: bool = False) -> Run:
    """Queue the run that answers a whole conversation, none of which is left out unless it may be.

    Raises as `services.ask` does, `TooManyMessages`, `MessagesRefused`.
    """
    _check(asked)
    chat = Chat(owner=user, is_kept=asked.is_kept, title=_title(asked) if asked.is_kept else "")
    asking = _asking(user, chat, asked)
    standing = asking.look()
    past = Past(chat.pk, (), system=asked.wishes.system_prompt).said(asked.messages)
    with _template_heeded():
        if may_leave_out:
            chosen = asking.choose(standing, _laying_out(asking, past))
        else:
            chosen = asking.choose(standing, lambda model: context.build(past, model, Layout()))
    return _submission(asking, asked, past, chosen).store()


def go_on(user: User, run: Run, asked: Asked) -> Run:
    """Queue the run that answers new messages behind those of another run, which is over, and its answer.

    In the same chat, if both are kept and nothing was said there since, else in a copy, whose oldest messages its
    prompt may leave out. Raises as `ask` does, and `ChatBusy` for a run that is not over.
    """
    if not Status(run.status).is_terminal:
        raise problems.ChatBusy(run_id=str(run.pk))
    system = joined(Wishes.of(run).system, asked.wishes.system)
    asked = replace(asked, wishes=replace(asked.wishes, system=system))
    if asked.is_kept:
        with suppress(HistoryMoved, problems.ChatBusy):  # whoever goes on from the same one was first
            return _behind(user, run, asked)
    return ask(user, replace(asked, messages=[*_said_with(run), *asked.messages]), may_leave_out=True)


def _behind(user: User, run: Run, asked: Asked) -> Run:
    """In its chat. Raises `HistoryMoved` where that has gone on."""
    _check(asked)
    chat = run.chat
    asking = _asking(user, chat, asked)
    standing = asking.look()
    past = Past.of(chat.pk, "" if asking.pick.is_auto else asked.model.pk)
    last = run.answer or run.prompt
    if last.replaced_at or past.end != last.position:
        raise HistoryMoved
    past = replace(past, system=asked.wishes.system_prompt).said(asked.messages)
    with _template_heeded():
        chosen = asking.choose(standing, _laying_out(asking, past))
    return _submission(asking, asked, past, chosen).store()


def _asking(user: User, chat: Chat, asked: Asked) -> Asking:
    return Asking(user, chat, Pick(asked.model, asked.rules), asked.max_output_tokens)


def _laying_out(asking: Asking, past: Past) -> LayOut:
    return lambda model: context.laid_out(past.as_for(model.pk), model, asking.answer_tokens(model))


def _said_with(run: Run) -> Sequence[tuple[Role, str]]:
    """The chat up to its question, and its answer if it left one, though another may have taken its place."""
    before = run.chat.messages.standing().filter(position__lte=run.prompt.position).order_by("position")
    said = [(Role(message.role), message.content) for message in before[: MOST_MESSAGES + 1]]
    return [*said, (Role.ASSISTANT, run.answer.content)] if run.answer else said


def _check(asked: Asked) -> None:
    if len(asked.messages) > MOST_MESSAGES:
        raise TooManyMessages(len(asked.messages), MOST_MESSAGES)
    for text in (asked.wishes.system_prompt or "", *asked.wishes.stop, *(text for _, text in asked.messages)):
        rules.check_storable(text)


def _submission(asking: Asking, asked: Asked, past: Past, chosen: Chosen) -> Submission:
    user, chat, model, prompt = asking.user, asking.chat, chosen.model, chosen.prompt
    cap = output_cap(user, model, prompt, asked.max_output_tokens, what="These messages make")
    count = model.tokenizer.count if asked.is_kept else len
    *earlier, question = (
        Message(
            chat=chat, position=line.position, role=line.role, content=line.content, token_count=count(line.content)
        )
        for line in past.lines[-len(asked.messages) :]
    )
    wishes, why = asked.wishes, chosen.reason
    return Submission(user, chat, model, question, prompt, cap, earlier=earlier, wishes=wishes, reason=why)


def _title(asked: Asked) -> str:
    """How the first question begins: the model is not asked for one."""
    first = next((text for role, text in asked.messages if role is Role.USER), "")
    line = next(filter(str.strip, first.splitlines()), "")
    return rules.in_a_line(line)[: Chat.LABEL_CHARS]


@contextmanager
def _template_heeded() -> Iterator[None]:
    """A template that does not take a program's messages is the program's to know."""
    try:
        yield
    except TemplateRefused as error:
        raise MessagesRefused from error
