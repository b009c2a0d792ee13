"""Chats, their messages and summaries: whose, when and how long; what they say is behind a permission."""

from __future__ import annotations

from contextlib import suppress

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from chat import audit, problems, services
from chat.admin.deleting import CountedDeletion
from chat.admin.finding import FoundAdmin
from chat.admin.words import WordsAdmin
from chat.models import Chat, Message, Role, Summary
from chat.usage import of_chat
from scheduler import links
from scheduler.admin import PartAdmin


@admin.register(Chat)
class ChatAdmin(CountedDeletion, FoundAdmin, WordsAdmin):
    """Whose chats there are; their titles tell what they are about, so lists go by id."""

    words = "title"
    private = ("title",)
    ids = ("id", "continues_id")
    owner = "owner"
    list_display = ("id", "whose", "origin", "parts", "created_at", "updated_at")
    fields = ("id", "whose", "origin", "parts", "prefix_cache", "created_at", "updated_at")
    readonly_fields = ("whose", "origin", "parts", "prefix_cache")
    list_select_related = ("owner",)
    ordering = ("-id",)  # by an index; the other way is a click away

    @admin.display(description="owner", ordering="owner__username")
    def whose(self, chat: Chat) -> str:
        """To the user's page."""
        return links.to_row("chat_user", chat.owner_id, chat.owner)

    @admin.display(description="continues")
    def origin(self, chat: Chat) -> str:
        """To the chat whose summary it began with."""
        return links.to_row("chat_chat", chat.continues_id)

    @admin.display(description="in it")
    def parts(self, chat: Chat) -> str:
        """Lists of them."""
        of_it = {"chat__id__exact": chat.pk}
        return links.together(
            links.to_list("chat_run", "runs", **of_it),
            links.to_list("chat_message", "messages", **of_it),
            links.to_list("chat_summary", "summaries", **of_it),
        )

    @admin.display(description="prefix cache")
    def prefix_cache(self, chat: Chat) -> str:
        """What part of its replies' input was not computed again."""
        taken = of_chat(chat)
        share = taken["cached_tokens"] / taken["input_tokens"] if taken["input_tokens"] else 0
        return (
            f"{taken['cached_tokens']} of {taken['input_tokens']} input tokens ({share:.0%}), in {taken['runs']} runs"
        )

    def delete_model(self, _request: HttpRequest, chat: Chat) -> None:
        """As its owner would: what is live in it stops."""
        audit.chat_deleted(chat)
        with suppress(problems.NotFound):
            services.delete(chat.owner, chat)

    def delete_queryset(self, request: HttpRequest, chats: QuerySet[Chat]) -> None:
        """Likewise, one after the other."""
        for chat in chats:
            self.delete_model(request, chat)


@admin.register(Message)
class MessageAdmin(FoundAdmin, PartAdmin, WordsAdmin):
    """Where each stands and how long it is. Its tokens, and an answer's HTML, are its words in other letters."""

    words = "content"
    private = ("content", "token_ids", "html")
    ids = ("id", "chat_id")
    owner = "chat__owner"
    list_display = ("id", "chat_link", "position", "role", "token_count", "created_at", "replaced_at")
    fields = ("id", "chat_link", "position", "role", "runs", "token_count", "created_at", "replaced_at")
    readonly_fields = ("chat_link", "runs")
    list_filter = ("role",)
    ordering = ("-id",)

    @admin.display(description="chat", ordering="chat_id")
    def chat_link(self, message: Message) -> str:
        """To its chat's page."""
        return links.to_row("chat_chat", message.chat_id)

    @admin.display
    def runs(self, message: Message) -> str:
        """Those that answer it, or the one that wrote it."""
        way = "prompt" if message.role == Role.USER else "answer"
        return links.to_list("chat_run", "runs", **{f"{way}__id__exact": message.pk})


@admin.register(Summary)
class SummaryAdmin(FoundAdmin, PartAdmin, WordsAdmin):
    """How far each covers its chat; what it says of it is the user's."""

    words = "text"
    private = ("text",)
    ids = ("id", "chat_id", "run_id")
    owner = "chat__owner"
    list_display = ("id", "chat_link", "epoch", "upto", "run_link", "warm_tokens", "created_at")
    fields = list_display
    readonly_fields = ("chat_link", "run_link")
    ordering = ("-id",)

    @admin.display(description="chat", ordering="chat_id")
    def chat_link(self, summary: Summary) -> str:
        """To its chat's page."""
        return links.to_row("chat_chat", summary.chat_id)

    @admin.display(description="run")
    def run_link(self, summary: Summary) -> str:
        """To the run that made it."""
        return links.to_row("chat_run", summary.run_id)
