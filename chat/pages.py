"""The pages: a list of chats beside one of them. Scripts fetch the same pages again and take over what is new."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import urlencode
from uuid import UUID, uuid4

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.http import content_disposition_header
from django.utils.translation import gettext
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from chat import markup, problems, sentences, services
from chat.api import paging
from chat.api.errors import problem_of
from chat.connections import given_back
from chat.endings import DETAILS
from chat.exporting import Form
from chat.lists import listed
from chat.models import Chat, User
from chat.turns import CUT_OFF, STOPPED, Tail, Turn, tail, turns
from chat.usage import Budget, Day, own_limits_until
from chatsite.languages import edition
from inference.tokens import TokensError
from scheduler.auto import Pick
from scheduler.errors import ModelUnknown
from scheduler.models import AUTO, Model

CHATS_A_PAGE = 30
MESSAGES_A_PAGE = 50

View = Callable[..., HttpResponse]


@dataclass(frozen=True, slots=True)
class Unsent:
    """What a form brought that was refused, and why: the page shows both, so that nothing is written twice."""

    problem: problems.Problem
    content: str
    model: str
    key: str

    @property
    def reason(self) -> str:
        """Why, in words."""
        return sentences.of(self.problem)

    @property
    def in_textarea(self) -> str:
        """The content as markup: a textarea drops its first line end."""
        return f"\n{self.content}"


def page(view: View) -> View:
    """A page for signed-in people; no cache keeps it, since the next person at that browser is somebody else."""
    return never_cache(given_back()(login_required(require_safe(view))))


@page
def home(request: HttpRequest) -> HttpResponse:
    """`/`: a new chat. `?cursor=` shows older chats in the list."""
    return of_new_chat(request)


@page
def conversation(request: HttpRequest, chat_id: UUID) -> HttpResponse:
    """`/chats/{id}`: one chat, its newest messages or, by `?cursor=`, those before. 404 for somebody else's."""
    return of_chat(request, chat_id)


def of_new_chat(request: HttpRequest, unsent: Unsent | None = None) -> HttpResponse:
    """The page of a chat that has not begun."""
    shown = {**_frame(request, request.GET.get("cursor")), **_models(request, Tail(None)), "tail": Tail(None)}
    return _answer(request, {**shown, "ask_address": reverse("ask-anew")}, unsent)


def of_chat(request: HttpRequest, chat_id: UUID, unsent: Unsent | None = None) -> HttpResponse:
    """The page of a chat. Raises `Http404`."""
    chats = Chat.objects.visible_to(_user(request)).with_opening()
    chat = get_object_or_404(chats.with_questions().with_beginning(), pk=chat_id)
    shown = {**_frame(request), **_transcript(request, chat), "chat": chat}
    shown |= {"origin": chats.filter(pk=chat.continues_id).first() if chat.continues_id else None}
    shown |= {**_models(request, shown["tail"]), **_room(request, chat, shown["tail"])}
    return _answer(request, {**shown, "ask_address": reverse("ask", args=[chat.pk])}, unsent)


@page
def export(request: HttpRequest, chat_id: UUID, suffix: str) -> HttpResponse:
    """`/chats/{id}/export.md` and `.json`: the chat as a file. 404 for somebody else's."""
    chat = get_object_or_404(Chat.objects.visible_to(_user(request)).with_opening(), pk=chat_id)
    form = Form.of(suffix)
    return HttpResponse(
        form.text(chat),
        content_type=form.media_type,
        headers={"Content-Disposition": content_disposition_header(as_attachment=True, filename=form.file_name(chat))},
    )


@never_cache
@require_POST
@given_back()
def continue_chat(request: HttpRequest, chat_id: UUID) -> HttpResponse:
    """`/chats/{id}/continue`: open a chat that goes on from this one, and lead there. 404 for somebody else's."""
    address = reverse("conversation", args=[chat_id])
    if not request.user.is_authenticated:
        return redirect_to_login(address)  # and back to the chat: this address only takes forms
    origin = get_object_or_404(Chat.objects.visible_to(_user(request)), pk=chat_id)
    try:
        return redirect("conversation", services.open_chat(_user(request), origin=origin).pk)
    except problems.NotFound as gone:
        raise Http404 from gone
    except (ModelUnknown, TokensError) as error:
        refusal = cast(problems.Problem, problem_of(error))
        is_without = isinstance(error, ModelUnknown)
        reason = gettext("No model is open to your plan.") if is_without else sentences.of(refusal)
        shown = {"address": address, "reason": reason}
        return render(request, "chat/not_continued.html", shown, status=refusal.status)


@page
def usage(request: HttpRequest) -> HttpResponse:
    """`/usage`: what is left of the budget, and what today's answers took of it."""
    user = _user(request)
    shown = {"limits": user.limits, "own_limits_until": own_limits_until(user)}
    return render(request, "chat/usage.html", {**shown, "budget": Budget.of(user), "today": Day.today(user)})


def _answer(request: HttpRequest, shown: dict[str, Any], unsent: Unsent | None) -> HttpResponse:
    """The page, with what could not be sent. Its form has a key, by which a second press of Send is known."""
    if unsent is None:
        return render(request, "chat/page.html", {**shown, "key": uuid4().hex})
    shown |= {"unsent": unsent, "key": unsent.key, "picked": unsent.model or shown["picked"]}
    return render(request, "chat/page.html", shown, status=unsent.problem.status)


def _frame(request: HttpRequest, cursor: str | None = None) -> dict[str, Any]:
    """What stands around a chat: the list of chats, and whose it is."""
    mine = Chat.objects.visible_to(_user(request)).with_live_run().worth_listing()
    try:
        chats, older = listed(request, lambda: paging.chats_behind(mine, cursor, CHATS_A_PAGE))
    except problems.CursorInvalid as error:
        raise Http404 from error
    return {
        "chats": chats,
        "is_first_page": not cursor,
        "older_chats": _behind(reverse("home"), older),
        "stopped": STOPPED,
        "cut_off": CUT_OFF,
        "edition": edition(),
        "sentences": {code: str(sentence) for code, sentence in sentences.SENTENCES.items()},
        "failures": {code: gettext(detail) for code, detail in DETAILS.items()},
        "budget": Budget.of(_user(request)),
        "max_content_bytes": settings.MAX_CONTENT_BYTES,
    }


def _transcript(request: HttpRequest, chat: Chat) -> dict[str, Any]:
    cursor = request.GET.get("cursor")

    def read() -> tuple[Tail, list[Turn], str | None]:
        # The run first: one that ends between the two queries is still followed, and its answer found to be there.
        stands = tail(chat)
        messages, earlier = paging.messages_before(chat, cursor, MESSAGES_A_PAGE)
        return stands, turns(messages, to_the_end=not cursor), earlier

    try:
        stands, said, earlier = listed(request, read)
    except problems.CursorInvalid as error:
        raise Http404 from error
    address = reverse("conversation", args=[chat.pk])
    html = markup.of_answers([turn.message for turn in said])
    return {
        "tail": stands,
        "window": stands.window,
        "turns": [replace(turn, html=html.get(turn.message.pk)) for turn in said],
        "is_newest": not cursor,
        "earlier": _behind(address, earlier),
    }


def _room(request: HttpRequest, chat: Chat, stands: Tail) -> dict[str, Any]:
    """Whether the chat takes another question, which matters once its last one has been answered."""
    limit = _user(request).tier.chat_turns
    is_full = chat.questions >= limit and not stands.live_run_id
    return {"full_reason": sentences.full(limit), "is_full": is_full}


def _models(request: HttpRequest, stands: Tail) -> dict[str, Any]:
    """The models to pick from, behind Auto where it is offered; what was picked last is so already, else the first."""
    tier = _user(request).tier.slug
    usable = list(Model.objects.usable_by(tier).order_by("-is_default", "name"))
    offered = [AUTO] if Pick.among(usable, tier) else []
    slugs = [*offered, *(model.slug for model in usable)]
    last = None if stands.run is None else AUTO if stands.run.auto else stands.run.model_id
    picked = last if last in slugs else next(iter(slugs), None)
    return {"models": usable, "auto": AUTO if offered else None, "picked": picked}


def _behind(address: str, cursor: str | None) -> str | None:
    return f"{address}?{urlencode({'cursor': cursor})}" if cursor else None


def _user(request: HttpRequest) -> User:
    return cast(User, request.user)
