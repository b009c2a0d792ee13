"""The models that whoever asks may use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from rest_framework.request import Request
from rest_framework.response import Response

from chat.models import User
from chat.openai.base import OpenAIView
from scheduler.auto import Pick
from scheduler.models import AUTO, Model


class Models(OpenAIView):
    """`/v1/models`"""

    def get(self, request: Request) -> Response:
        """All of them, the default one first, and Auto last."""
        usable = list(Model.objects.usable_by(_tier(request)).order_by("-is_default", "slug"))
        shown = [described(model) for model in usable]
        if pick := Pick.among(usable, _tier(request)):
            shown.append(_auto(pick))
        return Response({"object": "list", "data": shown})


class ModelDetail(OpenAIView):
    """`/v1/models/{id}`"""

    def get(self, request: Request, slug: str) -> Response:
        """One of them."""
        pick = Pick.of(_tier(request), slug)
        return Response(_auto(pick) if pick.is_auto else described(pick.model))


def described(model: Model) -> Mapping[str, Any]:
    """As OpenAI has it, with the window as vLLM tells it. When a model was added is not kept."""
    shape = {"id": model.slug, "object": "model", "created": 0, "owned_by": "palaver"}
    return {**shape, "max_model_len": model.context_window}


def _auto(pick: Pick) -> Mapping[str, Any]:
    """What is too long for another model goes to the default one."""
    return {**described(pick.model), "id": AUTO}


def _tier(request: Request) -> str:
    return cast(User, request.user).tier.slug
