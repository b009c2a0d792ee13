"""How a chat goes on in a new one: with its summary, and what was said behind that as a short transcript."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from chat import problems
from chat.models import Chat, Message, Role, Summary, User
from chatsite.database.prepared import insert
from inference.tokens import Tokenizer
from scheduler.models import Model

# Of the default model's window: the rest is for what is said from then on.
CARRIED_PERCENT = 25
# Of what is carried: one message must not push out all others.
MESSAGE_PERCENT = 25
# The newest are read, which bounds what a click may cost.
MOST_MESSAGES = 200
# Text longer than that a token is cut before it is counted: tokenising a long message takes tens of milliseconds.
MOST_CHARS_A_TOKEN = 16
CUT = "[…]"
BETWEEN = "\n\n"


def carried(user: User, origin: Chat) -> str:
    """What a chat that goes on from `origin` begins with; empty where nothing was said there.

    At most a quarter of the default model's window. Made without the model: it is there at once.
    Raises `scheduler.errors.ModelUnknown`, `inference.tokens.TokensError`.
    """
    model = Model.objects.pick(user.tier.slug)
    paper = _Paper(model.tokenizer, model.context_window * CARRIED_PERCENT // 100)
    summary = origin.summaries.order_by("-epoch").first()
    newest_first = origin.messages.standing().order_by("-position")
    behind = newest_first.filter(position__gt=summary.upto if summary else 0)[:MOST_MESSAGES]
    return paper.write(summary.text if summary else "", behind)


def new_chat(user: User, origin: Chat | None = None) -> Chat:
    """Store an empty chat."""
    chat = Chat(owner=user, continues=origin)
    insert(chat)
    return chat


def begin(user: User, origin: Chat, text: str) -> Chat:
    """Within a transaction: a chat that goes on from `origin` with `text`. Raises `NotFound` when that is gone."""
    # Held until the commit: a chat that is deleted meanwhile takes the reference to it along.
    if not Chat.objects.select_for_update(no_key=True).filter(pk=origin.pk).exists():
        raise problems.NotFound
    chat = new_chat(user, origin)
    if text:
        Summary.objects.create(chat=chat, epoch=1, upto=0, text=text)
    return chat


@dataclass(frozen=True, slots=True)
class _Paper:
    """Room for so many tokens of text."""

    tokenizer: Tokenizer
    tokens: int

    def write(self, summary: str, newest_first: Iterable[Message]) -> str:
        """The summary and the newest messages, in reading order; neither leaves the other without room."""
        for_messages = self.tokens - min(self._count(summary), self.tokens // 2)
        lines = self._transcript(newest_first, for_messages)
        head = self._cut(summary, self.tokens - sum(map(self._count, lines)))
        # Where two pieces meet they may come to more tokens than apart.
        while lines and self._count(_joined(head, lines)) > self.tokens:
            lines.pop(0)
        return _joined(head, lines)

    def _transcript(self, newest_first: Iterable[Message], left: int) -> list[str]:
        lines: list[str] = []
        for message in newest_first:
            said = self._cut(message.content, self.tokens * MESSAGE_PERCENT // 100)
            line = f"{Role(message.role).label}: {said}"
            left -= self._count(line)
            if left < 0:
                break
            lines.insert(0, line)
        return lines

    def _cut(self, text: str, most: int) -> str:
        """The text, without its middle where it has more than `most` tokens; empty where not even that fits."""
        chars = min(len(text), max(0, most) * MOST_CHARS_A_TOKEN)
        while (count := self._count(shown := _ends(text, chars))) > most:
            if not chars:
                return ""
            chars = chars * most // count
        return shown

    def _count(self, piece: str) -> int:
        """As one of several."""
        return self.tokenizer.count(BETWEEN + piece) if piece else 0


def _ends(text: str, chars: int) -> str:
    """The first and the last characters of a text, so many together."""
    if chars >= len(text):
        return text
    head = chars // 2
    return f"{text[:head].rstrip()} {CUT} {text[len(text) - chars + head :].lstrip()}".strip()


def _joined(head: str, lines: Iterable[str]) -> str:
    return BETWEEN.join(filter(None, [head, *lines]))
