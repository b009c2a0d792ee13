"""Tiers and models: the numbers that operators turn."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Model as Row
from django.http import HttpRequest

from scheduler.models import Model, Tier


class NamedOnceAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # takes one in the stubs only
    """Slugs stand in queue names and rows: once given they stay."""

    def get_readonly_fields(self, _request: HttpRequest, row: Row | None = None) -> tuple[str, ...]:
        """The slug, of what is there already."""
        return ("slug",) if row else ()


@admin.register(Tier)
class TierAdmin(NamedOnceAdmin):
    """What each class of users may do."""

    list_display = ("name", "slug", "weight", "concurrency", "max_output_tokens")


@admin.register(Model)
class ModelAdmin(NamedOnceAdmin):
    """Which models are served, how they are prompted, and to whom."""

    list_display = ("name", "slug", "context_window", "max_output_tokens", "temperature", "is_active", "is_default")
    list_filter = ("is_active", "tiers")
    filter_horizontal = ("tiers",)
