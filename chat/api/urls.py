"""The JSON API under /api/."""

from django.urls import URLPattern, URLResolver, path, re_path
from django.views.decorators.csrf import csrf_exempt

from chat.api import account, keys, reference, views
from chat.streaming.view import run_events, user_events

urlpatterns: list[URLPattern | URLResolver] = [
    path("chats", views.Chats.as_view(), name="chats"),
    path("chats/<uuid:chat_id>", views.ChatDetail.as_view(), name="chat"),
    path("chats/<uuid:chat_id>/messages", views.Messages.as_view(), name="messages"),
    path("messages/<uuid:message_id>", views.MessageDetail.as_view(), name="message"),
    path("runs/<uuid:run_id>", views.RunDetail.as_view(), name="run"),
    path("runs/<uuid:run_id>/cancel", views.CancelRun.as_view(), name="run-cancel"),
    path("runs/<uuid:run_id>/retry", views.RetryRun.as_view(), name="run-retry"),
    path("runs/<uuid:run_id>/stream", run_events, name="run-stream"),
    path("events", user_events, name="events"),
    path("usage", account.Usage.as_view(), name="usage"),
    path("keys", keys.Keys.as_view(), name="keys"),
    path("keys/<uuid:key_id>", keys.KeyDetail.as_view(), name="key"),
    path("models", account.Models.as_view(), name="models"),
    path("schema", reference.Schema.as_view(), name="schema"),
    path("docs", reference.Docs.as_view(), name="docs"),
    # Last: what no line above knows.
    re_path(r"", csrf_exempt(views.not_found)),
]
