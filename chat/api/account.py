"""What whoever asks may use, and how much of it is in use."""

from __future__ import annotations

from typing import Any, cast

from rest_framework.request import Request
from rest_framework.response import Response

from chat import usage
from chat.api.base import View
from chat.models import User
from scheduler.auto import Pick
from scheduler.models import AUTO, COUNTS, Model


class Usage(View):
    """`/api/usage`"""

    def get(self, request: Request) -> Response:
        """The user's tier and limits, and what of it is taken."""
        user = cast(User, request.user)
        return Response(
            {
                "tier": user.tier.slug,
                "tier_name": user.tier.name,
                "concurrency": user.limits.concurrency,
                "max_output_tokens": user.limits.max_output_tokens,
                "own_limits_until": usage.own_limits_until(user),
                "budget": _budget(user),
                **usage.live_replies(user),
                "today": _today(user),
            }
        )


class Models(View):
    """`/api/models`"""

    def get(self, request: Request) -> Response:
        """All models that the user may pick, the default one first, and Auto last."""
        user = cast(User, request.user)
        usable = list(Model.objects.usable_by(user.tier.slug).order_by("-is_default", "slug"))
        shown = [_described(model, user) for model in usable]
        if pick := Pick.among(usable, user.tier.slug):
            shown.append({**_described(pick.model, user), "slug": AUTO, "name": "Auto", "is_default": False})
        return Response({"results": shown, "next": None})


def _described(model: Model, user: User) -> dict[str, Any]:
    return {
        "slug": model.slug,
        "name": model.name,
        "context_window": model.context_window,
        "max_output_tokens": min(user.limits.max_output_tokens, model.max_output_tokens),
        "is_default": model.is_default,
    }


def _budget(user: User) -> dict[str, Any]:
    limits, budget = user.limits, usage.Budget.of(user)
    return {
        "tokens": limits.budget_tokens,
        "left_tokens": budget.level.tokens,
        "refill_tokens_per_hour": limits.refill_tokens_per_hour,
        "full_in_s": budget.level.full_in_s,
        "full_at": budget.full_at,
    }


def _today(user: User) -> dict[str, Any]:
    today = usage.Day.today(user)
    models = [{"model": entry.model_id, **{name: getattr(entry, name) for name in COUNTS}} for entry in today.entries]
    return {"day": today.day, "models": models, "total": today.total}
