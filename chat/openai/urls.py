"""What of OpenAI's API is spoken here."""

from django.urls import URLPattern, URLResolver, path, re_path, register_converter
from django.views.decorators.csrf import csrf_exempt

from chat.openai import base, completions, models, responses
from chat.openai.names import ResponseConverter

register_converter(ResponseConverter, "response")

urlpatterns: list[URLPattern | URLResolver] = [
    path("models", models.Models.as_view(), name="openai-models"),
    path("models/<str:slug>", models.ModelDetail.as_view(), name="openai-model"),
    path("chat/completions", completions.Completions.as_view(), name="openai-completions"),
    path("responses", responses.Responses.as_view(), name="openai-responses"),
    path("responses/<response:response_id>", responses.ResponseDetail.as_view(), name="openai-response"),
    path("responses/<response:response_id>/cancel", responses.CancelResponse.as_view(), name="openai-cancel"),
    # Last: what no line above knows.
    re_path(r"", csrf_exempt(base.not_found)),
]
