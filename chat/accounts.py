"""Signing up, in and out, with Django's own views and forms."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import wraps
from http import HTTPStatus
from typing import Any, cast

from auditlog.context import disable_auditlog
from django.conf import settings
from django.contrib.auth import login, views
from django.contrib.auth.forms import AuthenticationForm, SetPasswordMixin, UserCreationForm
from django.contrib.auth.views import RedirectURLMixin
from django.db import IntegrityError, transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.decorators import method_decorator
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.generic import FormView

from chat import throttles
from chat.models import User
from scheduler.errors import TooManySignIns

View = Callable[..., HttpResponseBase]


def throttled(view: View) -> View:
    """A view that signs in whom it answers by a redirect; after too many failures it answers nobody for a while."""

    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.method != "POST":
            return view(request, *args, **kwargs)
        try:
            with throttles.sign_in(request.META.get("REMOTE_ADDR", ""), _name(request)) as attempt:
                response = view(request, *args, **kwargs)
                attempt.has_succeeded = response.status_code == HTTPStatus.FOUND
        except TooManySignIns as refusal:
            return _come_back_later(request, refusal)
        return response

    return answer


def _name(request: HttpRequest) -> str:
    """As the form reads it: other spellings of one name are no fresh start."""
    return unicodedata.normalize("NFKC", request.POST.get("username", "")).strip()


def _come_back_later(request: HttpRequest, refusal: TooManySignIns) -> HttpResponse:
    wait_s = refusal.retry_after_s
    page = render(request, "accounts/refused.html", {"wait_minutes": -(-wait_s // 60)}, status=429)
    page.headers["Retry-After"] = str(wait_s)
    return page


class NewUserForm(UserCreationForm):  # type: ignore[type-arg]  # takes one in the stubs only
    """A name and a password; the tier is the model's default."""

    password1, password2 = SetPasswordMixin.create_password_fields(_("Password"), _("Password again"))

    class Meta(UserCreationForm.Meta):
        model = User
        fields = ("username",)

    def validate_password_for_user(self, user: User, password_field_name: str = "password1") -> None:  # noqa: S107
        """What is wrong with a password is said beside it, also where the second one differs."""
        super().validate_password_for_user(user, password_field_name)  # type: ignore[misc]


@method_decorator([never_cache, throttled], name="dispatch")
class SignIn(views.LoginView):
    """`/sign-in`: whoever is signed in goes on to `next`."""

    template_name = "accounts/sign_in.html"
    authentication_form = AuthenticationForm
    redirect_authenticated_user = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """With whether there is a page to sign up at."""
        return super().get_context_data(**kwargs, sign_up=settings.SIGN_UP)


@method_decorator([never_cache, sensitive_post_parameters()], name="dispatch")
class SignUp(RedirectURLMixin, FormView):  # type: ignore[type-arg]  # likewise
    """`/sign-up`: make an account and be signed in to it. 404 where the operator has switched it off."""

    template_name = "accounts/sign_up.html"
    form_class = NewUserForm
    next_page = "home"

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Whoever is signed in has an account."""
        if not settings.SIGN_UP:
            raise Http404
        if request.user.is_authenticated:
            return redirect(self.get_success_url())
        return super().dispatch(request, *args, **kwargs)

    def form_valid(self, form: NewUserForm) -> HttpResponse:
        """Store the account; the session gets a new key."""
        try:
            # The audit log is of operators' acts.
            with transaction.atomic(), disable_auditlog():
                user = cast(User, form.save())
        except IntegrityError:  # somebody took the name since the form looked
            form.add_error("username", "A user with that username already exists.")
            return self.form_invalid(form)
        login(self.request, user)
        return super().form_valid(form)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """With where to go afterwards."""
        return super().get_context_data(**kwargs, next=self.get_redirect_url())


class SignOut(views.LogoutView):
    """`/sign-out`: POST only, so that no link on another site signs anybody out."""
