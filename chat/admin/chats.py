"""Chats, their messages and runs."""

from __future__ import annotations

from contextlib import suppress

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from chat import audit, cancelling, problems, services
from chat.models import Chat, Message, Run, Summary, User
from chat.usage import of_chat
from scheduler.admin import PartAdmin, ReadOnlyAdmin


@admin.register(Chat)
class ChatAdmin(ReadOnlyAdmin):
    """Whose chats there are; their titles tell what they are about, so lists go by id."""

    list_display = ("id", "owner", "continues_id", "created_at", "updated_at")
    readonly_fields = ("continues", "prefix_cache")
    list_select_related = ("owner",)
    search_fields = ("id", "owner__username")
    ordering = ("-updated_at",)

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
        with suppress(problems.NotFound):
            services.delete(chat.owner, chat)

    def delete_queryset(self, request: HttpRequest, chats: QuerySet[Chat]) -> None:
        """Likewise, one after the other."""
        for chat in chats:
            self.delete_model(request, chat)


@admin.register(Message)
class MessageAdmin(PartAdmin):
    """Content is on a message's own page only."""

    list_display = ("id", "chat_id", "position", "role", "token_count", "created_at")
    list_filter = ("role",)
    search_fields = ("id", "chat__id")
    ordering = ("-id",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Message]:
        """Lists do not even read it."""
        return super().get_queryset(request).defer("content", "token_ids")


@admin.register(Summary)
class SummaryAdmin(PartAdmin):
    """How far each covers its chat; what it says of it is the user's."""

    list_display = ("id", "chat_id", "epoch", "upto", "run_id", "warm_tokens", "created_at")
    search_fields = ("id", "chat__id")
    ordering = ("-id",)
    raw_id_fields = ("chat", "run")
    exclude = ("text",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Summary]:
        """The text is not even read."""
        return super().get_queryset(request).defer("text")


@admin.register(Run)
class RunAdmin(PartAdmin):
    """Where each run stands, and how it went. Deleted by itself it would be charged to nobody, and in no ledger."""

    list_display = (
        *("id", "owner", "kind", "model", "tier", "status", "attempt"),
        *("input_tokens", "cached_tokens", "output_tokens", "charged_tokens", "error_code"),
        *("created_at", "released_at", "started_at", "first_token_at", "finished_at"),
    )
    list_filter = ("status", "tier", "model", "kind")
    list_select_related = ("chat__owner", "model", "tier")
    search_fields = ("id", "chat__id", "chat__owner__username")
    ordering = ("-id",)
    raw_id_fields = ("chat", "prompt", "answer")
    actions = ("cancel",)

    @admin.action(description="Cancel the selected runs", permissions=["cancel"])
    def cancel(self, request: HttpRequest, runs: QuerySet[Run]) -> None:
        """Stop those that are live."""
        asked = list(Run.objects.live().filter(pk__in=runs))
        for run in asked:
            audit.cancel_asked(run)
            cancelling.cancel(run)
        self.message_user(request, f"{len(asked)} told to stop.")

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Who may delete runs with their chat may stop them."""
        return request.user.has_perm("chat.delete_run")

    @admin.display(ordering="chat__owner__username")
    def owner(self, run: Run) -> User:
        """Whose it is."""
        return run.chat.owner
