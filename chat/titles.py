"""Titles: one a chat, by the model, behind the first answer. Until then a chat is known by its first words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from chat import announcements, context
from chat.context import Layout, Prompt
from chat.models import Chat, Role, Run, Status
from chat.past import Line, Past, epoch, lines
from chat.said import said

TITLE_TOKENS = 24
# Behind the first answer: all before it is in the prefix cache, and stays there.
ASK = "Give this conversation a title of at most six words, in its own language. Write the title and nothing else."
LABEL = re.compile(r"^\s*(title|name)\s*:\s*", re.IGNORECASE)
WRAPPING = " \t\"'`*#_“”‘’«»„"
# Control and format characters but the joiners, which Persian and emoji need; private and unassigned ones.
UNFIT = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
MARKS = ("**", "__", "`")
# What stands for a character that the cap cut, or that cannot be stored.
CUT_CHARACTER = "\ufffd"
JOINERS = "\u200c\u200d"


def due(reply: Run) -> Run | None:
    """The run to make one, not stored, behind a reply; None where there is a title, or was a run for one."""
    if reply.chat.title:
        return None  # most replies: nothing is read for them
    untitled = Chat.objects.filter(pk=reply.chat_id, title="")
    tried = Run.objects.filter(chat=reply.chat_id, kind=Run.Kind.TITLE).exclude(status=Status.FAILED, attempt=0)
    if not untitled.exists() or tried.exists():
        return None
    run = Run(
        chat=reply.chat,
        prompt=reply.prompt,
        kind=Run.Kind.TITLE,
        model=reply.model,
        tier_id=reply.tier_id,
        epoch=reply.epoch,
        first_position=reply.first_position,
        left_out=reply.left_out,
        max_output_tokens=TITLE_TOKENS,
        warm_worker=reply.worker,
        warm_tokens=reply.input_tokens + reply.output_tokens,
    )
    run.input_tokens = len(prompt(run).ids)
    return run if run.input_tokens + TITLE_TOKENS <= reply.model.context_window else None


def prompt(run: Run) -> Prompt:
    """The conversation so far, as the reply's prompt had it, and what is asked of the model."""
    spoken = lines(run.chat_id, run.first_position, before=run.prompt.position + 2)
    past = Past(run.chat_id, [*spoken, Line(spoken[-1].position + 1, Role.USER, ASK)], epoch(run.chat_id, run.epoch))
    return context.build(past, run.model, Layout(run.epoch, run.first_position, run.left_out))


def prefix(_run: Run, _text: str) -> Sequence[int]:
    """Nothing to be computed before it is used."""
    return ()


def accept(run: Run, text: str, _warm_tokens: int) -> bool:
    """Give the chat its title, unless it got another meanwhile; False for a text that is none."""
    title = cleaned(text)
    if title:
        Chat.objects.filter(pk=run.chat_id, title="").update(title=title)
    return bool(title)


def told(run: Run) -> None:
    """Let open pages know."""
    if chat := Chat.objects.with_live_run().filter(pk=run.chat_id).first():
        announcements.changed(chat)


def cleaned(text: str) -> str:
    """The title in what a model wrote: its first line, without wrapping; empty where there is none."""
    first = next(filter(str.strip, said(text).splitlines()), "")
    fit = "".join(c for c in first if c in JOINERS or unicodedata.category(c) not in UNFIT)
    for mark in (*MARKS, CUT_CHARACTER):
        fit = fit.replace(mark, "")
    fit = fit.strip()
    title = LABEL.sub("", fit.strip(WRAPPING)).strip(WRAPPING).rstrip(".:").strip(WRAPPING).strip()
    if not any(unicodedata.category(c)[0] in "LNS" for c in title):
        return ""
    if len(title) <= Chat.LABEL_CHARS:
        return title
    return f"{title[: Chat.LABEL_CHARS - 1].rsplit(maxsplit=1)[0]}…"
