"""The models that whoever asks may use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from rest_framework.request import Request
from rest_framework.response import Response

from chat.models import User
from chat.openai.base import OpenAIView
from scheduler.models import Model


class Models(OpenAIView):
    """`/v1/models`"""

    def get(self, request: Request) -> Response:
        """All of them, the default one first."""
        usable = Model.objects.usable_by(_tier(request)).order_by("-is_default", "slug")
        return Response({"object": "list", "data": [described(model) for model in usable]})


class ModelDetail(OpenAIView):
    """`/v1/models/{id}`"""

    def get(self, request: Request, slug: str) -> Response:
        """One of them."""
        return Response(described(Model.objects.pick(_tier(request), slug)))


def described(model: Model) -> Mapping[str, Any]:
    """As OpenAI has it, with the window as vLLM tells it. When a model was added is not kept."""
    shape = {"id": model.slug, "object": "model", "created": 0, "owned_by": "palaver"}
    return {**shape, "max_model_len": model.context_window}


def _tier(request: Request) -> str:
    return cast(User, request.user).tier.slug
