"""The ledger: what came of the limits."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from scheduler import links
from scheduler.admin.read_only import PartAdmin
from scheduler.models import COUNTS, LedgerEntry


class TodaysUse(admin.TabularInline):  # type: ignore[type-arg]  # takes one in the stubs only
    """The user's ledger of today (UTC), on the user's page."""

    model = LedgerEntry
    verbose_name_plural = "today's use (UTC): runs that have ended"
    fields = ("model", *COUNTS)
    readonly_fields = fields
    can_delete = False

    def has_add_permission(self, _request: HttpRequest, _row: Any = None) -> bool:
        """Written when runs end."""
        return False

    def has_change_permission(self, _request: HttpRequest, _row: Any = None) -> bool:
        """Likewise."""
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[LedgerEntry]:
        """One entry a model."""
        today = timezone.now().date()
        return super().get_queryset(request).filter(day=today).select_related("model")


@admin.register(LedgerEntry)
class LedgerAdmin(PartAdmin):
    """What was used, by user, day and model; kept as long as its user is."""

    list_display = ("day", "whose", "model", *COUNTS)
    list_filter = ("day", "model", "user__tier")
    list_select_related = ("user", "model")
    search_fields = ("user__username",)
    date_hierarchy = "day"

    @admin.display(description="user", ordering="user__username")
    def whose(self, entry: LedgerEntry) -> str:
        """To the user's page."""
        return links.to_row("chat_user", entry.user_id, entry.user)
