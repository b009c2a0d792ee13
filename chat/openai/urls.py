"""What of OpenAI's API is spoken here."""

from django.urls import URLPattern, URLResolver, path, re_path
from django.views.decorators.csrf import csrf_exempt

from chat.openai import base, completions, models

urlpatterns: list[URLPattern | URLResolver] = [
    path("models", models.Models.as_view(), name="openai-models"),
    path("models/<str:slug>", models.ModelDetail.as_view(), name="openai-model"),
    path("chat/completions", completions.Completions.as_view(), name="openai-completions"),
    # Last: what no line above knows.
    re_path(r"", csrf_exempt(base.not_found)),
]
