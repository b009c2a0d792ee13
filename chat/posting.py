"""What people without scripts do, by forms that land on the chat: ask, stop, have a question answered again."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any, Self, TypeVar, cast
from uuid import UUID, uuid4

from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from chat import cancelling, content, pages, problems, services, throttles
from chat.api.authentication import session_digest
from chat.api.errors import problem_of
from chat.api.idempotency import done_once
from chat.connections import given_back
from chat.models import Chat, IdempotencyKey, KeyLost, User
from chat.turns import Tail, tail
from inference.tokens import TokensError
from scheduler.auto import Pick
from scheduler.errors import SchedulerError

# A second press of Send waits for what the first one makes, for three seconds at most.
PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.5)

View = Callable[..., HttpResponse]
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Written:
    """A question as a form brought it."""

    user: User
    content: str
    model: str
    key: str

    @classmethod
    def of(cls, request: HttpRequest) -> Self:
        """Read the form. Browsers send lines that end in CRLF."""
        form = request.POST
        text = form.get("content", "").replace("\r\n", "\n")
        return cls(cast(User, request.user), text, form.get("model", ""), form.get("key") or uuid4().hex)

    def once(self, address: str) -> IdempotencyKey:
        """For what is made at `address` of it. The form's key alone would not do: Back leads to the same form."""
        parts = json.dumps([address, self.key, self.content, self.model])
        digest = hashlib.sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()
        return IdempotencyKey(user=self.user, key=f"form {digest}", fingerprint=digest)


def form(view: View) -> View:
    """A view for forms of signed-in people, who are asked to sign in at the page that the form stands on."""

    @wraps(view)
    def answer(request: HttpRequest, **kwargs: Any) -> HttpResponse:
        chat_id = kwargs.get("chat_id")
        if not request.user.is_authenticated:
            return redirect_to_login(_page_of(chat_id))
        if request.method in {"GET", "HEAD"}:  # a page with a refusal stands at this address
            return redirect(_page_of(_chat(request, chat_id).pk if chat_id else None))
        return view(request, **kwargs)

    return never_cache(require_http_methods(["GET", "HEAD", "POST"])(given_back()(answer)))


@form
def ask(request: HttpRequest, chat_id: UUID | None = None) -> HttpResponse:
    """`/chats/{id}/ask`, and `/ask` for a new chat. 404 for somebody else's."""
    written = Written.of(request)
    chat = _chat(request, chat_id) if chat_id else None
    try:
        throttles.requests().take(f"session:{session_digest(request)}")
        content.check(written.content)
        pick = Pick.of(written.user.tier.slug, written.model or None)
        question = services.Question(written.content, pick.model, rules=pick.rules)
        chat = chat or _opened(written)
        _asked(written, chat, question)
    except (problems.Problem, SchedulerError, TokensError, KeyLost) as error:
        return _refused(request, written, chat, error)
    return redirect("conversation", chat.pk)


@form
def stop(request: HttpRequest, chat_id: UUID) -> HttpResponse:
    """`/chats/{id}/stop`: stop the chat's answer, if there is one. 404 for somebody else's."""
    chat = _chat(request, chat_id)
    if (stands := tail(chat)).run and stands.live_run_id:
        with suppress(problems.NotFound):  # deleted meanwhile: its page says so
            cancelling.cancel(stands.run)
    return redirect("conversation", chat.pk)


@form
def retry(request: HttpRequest, chat_id: UUID) -> HttpResponse:
    """`/chats/{id}/retry`: answer the latest question again, once for each `run` that the form names."""
    chat = _chat(request, chat_id)
    stands = tail(chat)
    if stands.run and str(stands.run.pk) == request.POST.get("run"):
        try:
            _retried(request, stands)
        except (problems.Problem, SchedulerError, TokensError) as error:
            return _refused(request, Written.of(request), chat, error)
    return redirect("conversation", chat.pk)


def _asked(written: Written, chat: Chat, question: services.Question) -> None:
    def act(first: IdempotencyKey) -> UUID:
        return services.ask(written.user, chat, question, first).pk

    key = written.once(_page_of(chat.pk))
    _patiently(lambda: done_once(key, act, lambda run_id: run_id))


def _opened(written: Written) -> Chat:
    """The new chat that the question is for, the same one each time."""

    def act(first: IdempotencyKey) -> Chat:
        return services.open_chat(written.user, first)

    key = written.once(_page_of(None))
    mine = Chat.objects.visible_to(written.user)
    return _patiently(lambda: done_once(key, act, lambda chat_id: get_object_or_404(mine, pk=chat_id)))


def _retried(request: HttpRequest, stands: Tail) -> None:
    throttles.requests().take(f"session:{session_digest(request)}")
    if stands.run and not stands.live_run_id:
        services.retry(cast(User, request.user), stands.run)


def _patiently(act: Callable[[], Made]) -> Made:
    """What `act` returns, once no other request does the same. Raises `IdempotencyInFlight` where that takes long."""
    for pause_s in PAUSES_S:
        try:
            with given_back():
                return act()
        except problems.IdempotencyInFlight:
            time.sleep(pause_s)
    return act()


def _refused(request: HttpRequest, written: Written, chat: Chat | None, error: Exception) -> HttpResponse:
    """The page with the reason, and with what was written. Raises `Http404` where the chat is gone."""
    problem = cast(problems.Problem, problem_of(error))
    if isinstance(problem, problems.NotFound):
        raise Http404 from error
    unsent = pages.Unsent(problem, written.content, written.model, written.key)
    page = pages.of_chat(request, chat.pk, unsent) if chat else pages.of_new_chat(request, unsent)
    for name, value in problem.headers.items():
        page[name] = value
    return page


def _chat(request: HttpRequest, chat_id: UUID) -> Chat:
    return get_object_or_404(Chat.objects.visible_to(cast(User, request.user)), pk=chat_id)


def _page_of(chat_id: UUID | None) -> str:
    return reverse("conversation", args=[chat_id]) if chat_id else reverse("home")
