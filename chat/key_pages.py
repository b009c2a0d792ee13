"""API keys for people: `/keys`, with a form for a new one and a button to revoke each."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from http import HTTPStatus
from typing import Any, cast
from uuid import UUID

from django import forms
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from chat import keyring, problems, sentences
from chat.api.errors import problem_of
from chat.connections import given_back
from chat.models import USUAL_SCOPES, Scope, User
from scheduler.errors import Refused

View = Callable[..., HttpResponse]

FOREVER = 0


class NewKeyForm(forms.Form):
    """What a key is to be called, to be good for, and for how long."""

    name = forms.CharField(label=_("Name"), max_length=keyring.NAME_CHARS, validators=[keyring.check_name])
    scopes = forms.MultipleChoiceField(
        label=_("It may"),
        choices=[
            (Scope.READ.value, _("read your chats and follow answers")),
            (Scope.WRITE.value, _("ask, and change or delete your chats")),
            (Scope.ADMIN.value, _("make and revoke keys")),
        ],
        initial=USUAL_SCOPES,
        widget=forms.CheckboxSelectMultiple,
    )
    days = forms.TypedChoiceField(
        label=_("It opens"),
        choices=[(30, _("for 30 days")), (90, _("for 90 days")), (365, _("for a year")), (FOREVER, _("for good"))],
        initial=90,
        coerce=int,
    )

    def wanted(self) -> keyring.NewKey:
        """What a valid form says."""
        said = self.cleaned_data
        until = timezone.now() + timedelta(days=said["days"]) if said["days"] != FOREVER else None
        return keyring.NewKey(said["name"], said["scopes"], until)


def page(view: View) -> View:
    """A page for signed-in people that also takes its own forms."""
    return never_cache(given_back()(login_required(require_http_methods(["GET", "HEAD", "POST"])(view))))


@page
def keys(request: HttpRequest) -> HttpResponse:
    """`/keys`: those there are, and a form for a new one, whose secret is shown in answer to it and never again."""
    if request.method != "POST":
        return _shown(request, NewKeyForm())
    form = NewKeyForm(request.POST)
    if not form.is_valid():
        return _shown(request, form, status=HTTPStatus.BAD_REQUEST)
    try:
        key, secret = keyring.issue(_user(request), form.wanted())
    except (problems.Problem, Refused) as error:
        problem = problem_of(error) or problems.Internal()
        form.add_error(None, sentences.of(problem))
        return _shown(request, form, status=problem.status)
    return _shown(request, NewKeyForm(), made=key, secret=secret, status=HTTPStatus.CREATED)


@page
def revoke(request: HttpRequest, key_id: UUID) -> HttpResponse:
    """`/keys/{id}/revoke`: from now on it opens nothing. 404 for somebody else's."""
    if request.method == "POST":
        try:
            keyring.revoke(_user(request), key_id)
        except problems.NotFound as error:
            raise Http404 from error
    elif not keyring.listed(_user(request)).filter(public_id=key_id).exists():
        raise Http404
    return redirect("own-keys")


def _shown(request: HttpRequest, form: NewKeyForm, status: int = HTTPStatus.OK, **made: Any) -> HttpResponse:
    shown = {"form": form, "keys": keyring.listed(_user(request)), "now": timezone.now(), **made}
    return render(request, "accounts/keys.html", shown, status=status)


def _user(request: HttpRequest) -> User:
    return cast(User, request.user)
