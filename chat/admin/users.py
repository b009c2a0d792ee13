"""Users with their limits and today's use, and their keys."""

from __future__ import annotations

from math import ceil
from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import QuerySet, prefetch_related_objects
from django.http import HttpRequest
from django.utils import timezone

from chat import accounting, services
from chat.admin.deleting import CountedDeletion
from chat.models import ApiKey, User
from scheduler import links
from scheduler.admin import OverrideInline, ReadOnlyAdmin, TodaysUse

MINUTE_S, HOUR_S = 60, 3600


class PermissionsAtOnce(admin.ModelAdmin):  # type: ignore[type-arg]  # takes one in the stubs only
    """Whoever may only look is shown each permission by its name, for which Django asks the database one by one."""

    permissions_of: str

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """The row, with its permissions and what their names are made of."""
        row = super().get_object(request, object_id, from_field)
        if row is not None:
            prefetch_related_objects([row], f"{self.permissions_of}__content_type")
        return row


admin.site.unregister(Group)


@admin.register(Group)
class SparingGroupAdmin(PermissionsAtOnce, GroupAdmin):
    """Django's own."""

    permissions_of = "permissions"


@admin.register(User)
class TieredUserAdmin(PermissionsAtOnce, CountedDeletion, UserAdmin):  # type: ignore[type-arg]  # takes one in the stubs only
    """Django's own, with the tier, the user's override of it, and today's use."""

    permissions_of = "user_permissions"

    list_display = ("username", "email", "tier", "is_active", "is_staff", "date_joined")
    list_filter = ("tier", "is_active", "is_staff", "is_superuser")
    list_select_related = ("tier",)
    fieldsets = (
        (None, {"fields": ("username", "password", "tier", "budget", "belongings", "acts")}),
        *(UserAdmin.fieldsets or ())[1:],
    )
    readonly_fields = ("budget", "belongings", "acts")
    add_fieldsets = ((None, {"fields": ("username", "tier", "usable_password", "password1", "password2")}),)
    inlines = (OverrideInline, TodaysUse)

    def get_inlines(self, _request: HttpRequest, user: User | None) -> tuple[type[Any], ...]:
        """Of a user who is there."""
        return self.inlines if user else ()

    @admin.display
    def budget(self, user: User) -> str:
        """What is left of it now; full while its Redis is away, since then nothing is counted."""
        limits = user.limits
        level = accounting.buckets().level(user.pk, limits)
        left = f"{level.tokens:,} of {limits.budget_tokens:,} tokens"
        return f"{left}; full in {_duration(level.full_in_s)} if nothing more is asked" if level.full_in_s else left

    @admin.display(description="theirs")
    def belongings(self, user: User) -> str:
        """Lists of them."""
        return links.together(
            links.to_list("chat_chat", "chats", owner__id__exact=user.pk),
            links.to_list("chat_run", "runs", chat__owner__id__exact=user.pk),
            links.to_list("chat_apikey", "keys", user__id__exact=user.pk),
            links.to_list("scheduler_ledgerentry", "ledger", user__id__exact=user.pk),
        )

    @admin.display(description="in the audit log")
    def acts(self, user: User) -> str:
        """What the user did as an operator, and what operators changed of the user."""
        return links.together(
            links.to_list("auditlog_logentry", "by this user", actor__id__exact=user.pk),
            links.to_list("auditlog_logentry", "of this user", object_pk__exact=user.pk),
        )

    def delete_model(self, _request: HttpRequest, user: User) -> None:
        """With all that is theirs; what is live in their chats stops."""
        services.delete_user(user)

    def delete_queryset(self, request: HttpRequest, users: QuerySet[User]) -> None:
        """Likewise, one after the other."""
        for user in users:
            self.delete_model(request, user)


def _duration(seconds: float) -> str:
    if seconds < 2 * MINUTE_S:
        return f"{ceil(seconds)} s"
    if seconds < 2 * HOUR_S:
        return f"{ceil(seconds / MINUTE_S)} min"
    return f"{seconds / HOUR_S:,.1f} h"


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnlyAdmin):
    """Keys can be revoked here and nothing else: a secret is shown once, where `manage.py apikey` makes it."""

    private = ("digest",)
    list_display = ("shown", "name", "whose", "scopes", "created_at", "last_used_at", "expires_at", "revoked_at")
    list_select_related = ("user",)
    search_fields = ("shown", "name", "user__username")
    fields = list_display
    readonly_fields = ("whose",)
    actions = ("revoke",)

    @admin.action(description="Revoke the selected keys", permissions=["delete"])
    @transaction.atomic
    def revoke(self, request: HttpRequest, keys: QuerySet[ApiKey]) -> None:
        """From now on they open nothing."""
        usable = list(keys.filter(revoked_at=None).select_for_update(of=("self",)))
        for key in usable:  # one by one: an UPDATE of many is not audited
            key.revoked_at = timezone.now()
            key.save(update_fields=["revoked_at"])
        self.message_user(request, f"{len(usable)} revoked.")

    @admin.display(description="user", ordering="user__username")
    def whose(self, key: ApiKey) -> str:
        """To the user's page."""
        return links.to_row("chat_user", key.user_id, key.user)
