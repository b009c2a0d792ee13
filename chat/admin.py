"""What operators see of users, chats and runs. Lists never show what people wrote."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.db.models import Model as Row
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest

from chat.models import ApiKey, Chat, Message, Run, User


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # takes one in the stubs only
    """Rows that only the product writes. Long tables: no count of all rows beside a search."""

    show_full_result_count = False

    def has_add_permission(self, _request: HttpRequest) -> bool:
        """Made elsewhere."""
        return False

    def has_change_permission(self, _request: HttpRequest, _row: Row | None = None) -> bool:
        """Changed elsewhere."""
        return False


@admin.register(User)
class TieredUserAdmin(UserAdmin):  # type: ignore[type-arg]  # likewise
    """Django's own, with the tier."""

    list_display = ("username", "email", "tier", "is_active", "is_staff", "date_joined")
    list_filter = ("tier", "is_active", "is_staff", "is_superuser")
    list_select_related = ("tier",)
    fieldsets = ((None, {"fields": ("username", "password", "tier")}), *(UserAdmin.fieldsets or ())[1:])
    add_fieldsets = ((None, {"fields": ("username", "tier", "usable_password", "password1", "password2")}),)


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnlyAdmin):
    """Keys can be revoked here and nothing else: a secret is shown once, where `manage.py apikey` makes it."""

    list_display = ("shown", "name", "user", "created_at", "expires_at", "revoked_at")
    list_select_related = ("user",)
    search_fields = ("shown", "name", "user__username")
    fields = ("shown", "name", "user", "created_at", "expires_at", "revoked_at")
    actions = ("revoke",)

    @admin.action(description="Revoke the selected keys", permissions=["delete"])
    def revoke(self, request: HttpRequest, keys: QuerySet[ApiKey]) -> None:
        """From now on they open nothing."""
        revoked = keys.filter(revoked_at=None).update(revoked_at=Now())
        self.message_user(request, f"{revoked} revoked.")


@admin.register(Chat)
class ChatAdmin(ReadOnlyAdmin):
    """Whose chats there are; their titles tell what they are about, so lists go by id."""

    list_display = ("id", "owner", "created_at", "updated_at")
    list_select_related = ("owner",)
    search_fields = ("id", "owner__username")
    ordering = ("-updated_at",)


@admin.register(Message)
class MessageAdmin(ReadOnlyAdmin):
    """Content is on a message's own page only."""

    list_display = ("id", "chat_id", "position", "role", "token_count", "created_at")
    list_filter = ("role",)
    search_fields = ("id", "chat__id")
    ordering = ("-id",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Message]:
        """Lists do not even read it."""
        return super().get_queryset(request).defer("content")


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin):
    """Where each run stands, and how it went."""

    list_display = (
        *("id", "owner", "kind", "model", "tier", "status", "attempt"),
        *("input_tokens", "cached_tokens", "output_tokens", "error_code"),
        *("created_at", "released_at", "started_at", "first_token_at", "finished_at"),
    )
    list_filter = ("status", "tier", "model", "kind")
    list_select_related = ("chat__owner", "model", "tier")
    search_fields = ("id", "chat__id", "chat__owner__username")
    ordering = ("-id",)
    raw_id_fields = ("chat", "prompt", "answer")

    @admin.display(ordering="chat__owner__username")
    def owner(self, run: Run) -> User:
        """Whose it is."""
        return run.chat.owner
