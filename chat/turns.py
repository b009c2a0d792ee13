"""What a page says of a chat's messages beside their text: how the runs behind them went, and what can be done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from uuid import UUID

from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy, ngettext

from chat.endings import FINAL_CODES
from chat.models import Chat, Message, Role, Run, Status
from scheduler.auto import Reason

STOPPED = gettext_lazy("Stopped.")
CUT_OFF = gettext_lazy("Cut off: this is the longest answer allowed here.")


@dataclass(frozen=True, slots=True)
class Turn:
    """A message, what is to be said below it, and the run behind it; of an answer, its HTML.

    Nothing is said below the chat's last, whose run has a `Tail`.
    """

    message: Message
    note: str = ""
    run: Run | None = None
    html: SafeString | None = None

    @property
    def answered_by(self) -> str:
        """Of an answer; see `answered_by`."""
        return answered_by(self.run) if self.run and self.message.role == Role.ASSISTANT else ""


@dataclass(frozen=True, slots=True)
class Window:
    """How much of what its model can read a chat takes by now."""

    used: int
    size: int

    @property
    def percent(self) -> int:
        """Of it; a summary or what is left out keeps it below all."""
        return min(100, 100 * self.used // max(1, self.size))


@dataclass(frozen=True, slots=True)
class Tail:
    """How the chat's latest run stands: the only one that can be stopped or tried again."""

    run: Run | None

    @property
    def live_run_id(self) -> UUID | None:
        """The run to follow."""
        return self.run.pk if self.run and not Status(self.run.status).is_terminal else None

    @property
    def window(self) -> Window | None:
        """What the chat took of its model's window; None before its first answer. Ask for it with the run's model."""
        if self.run is None or not self.run.input_tokens:
            return None
        return Window(self.run.input_tokens + self.run.output_tokens, self.run.model.context_window)

    @property
    def note(self) -> str:
        """How it went, where there is something to say of it."""
        return note(self.run) if self.run else ""

    @property
    def answered_by(self) -> str:
        """Of an answer that is being written."""
        return answered_by(self.run) if self.run and self.live_run_id else ""

    @property
    def is_retryable(self) -> bool:
        """Whether another try makes sense."""
        return self.run is not None and self.live_run_id is None and self.run.error_code not in FINAL_CODES


def tail(chat: Chat) -> Tail:
    """How the chat's latest run stands."""
    return Tail(chat.runs.filter(kind=Run.Kind.REPLY).select_related("model").order_by("-id").first())


def turns(messages: Sequence[Message], *, to_the_end: bool) -> list[Turn]:
    """The messages with their notes; `to_the_end` where the last of them is the chat's."""
    runs = Run.objects.select_related("model").by_message(messages)
    found = [
        Turn(message, _note_between(message, following, runs), runs.get(message.pk))
        for message, following in zip_longest(messages, messages[1:])
    ]
    if to_the_end and found:
        found[-1] = replace(found[-1], note="")
    return found


def answered_by(run: Run) -> str:
    """Which model Auto chose, and why where another was busy; empty where its user picked one. Read with its model."""
    reason = Reason.read(run.auto)
    if reason is None:
        return ""
    names = {"model": run.model.name, "other": reason.otherwise_name}
    if reason.is_for_load and run.model_id != reason.otherwise:
        return gettext("Answered by %(model)s, since %(other)s was busy.") % names
    return gettext("Answered by %(model)s.") % names


def note(run: Run) -> str:
    """How a run ended, and what its answer was written without; empty for one that went well."""
    return " ".join(filter(None, [_ending(run), _left_out(run)]))


def _ending(run: Run) -> str:
    match Status(run.status):
        case Status.FAILED:
            return gettext(run.error_detail)
        case Status.CANCELLED:
            return str(STOPPED)
        case Status.DONE if run.finish_reason == "length":
            return str(CUT_OFF)
        case _:
            return ""


def _left_out(run: Run) -> str:
    if not run.answer_id or not run.left_out:
        return ""
    return ngettext(
        "The oldest message of this chat did not fit and was left out here.",
        "The oldest %(count)s messages of this chat did not fit and were left out here.",
        run.left_out,
    ) % {"count": run.left_out}


def _note_between(message: Message, following: Message | None, runs: dict[UUID, Run]) -> str:
    """A question speaks of its run only where no answer does."""
    is_answered = message.role == Role.USER and (following is None or following.role == Role.ASSISTANT)
    run = None if is_answered else runs.get(message.pk)
    return note(run) if run else ""
