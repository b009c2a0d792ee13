"""Tiers, models and overrides: the numbers that operators turn. The ledger: what came of them."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Model as Row
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from scheduler.models import COUNTS, LedgerEntry, Model, Override, Tier


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # takes one in the stubs only
    """Rows that only the product writes. Long tables: no count of all rows beside a search."""

    show_full_result_count = False

    def has_add_permission(self, _request: HttpRequest) -> bool:
        """Made elsewhere."""
        return False

    def has_change_permission(self, _request: HttpRequest, _row: Row | None = None) -> bool:
        """Changed elsewhere."""
        return False


class PartAdmin(ReadOnlyAdmin):
    """Rows that go with what they belong to, and not by themselves."""

    def has_delete_permission(self, request: HttpRequest, row: Row | None = None) -> bool:
        """Not on their own pages: the page that deletes the whole asks this too."""
        page = request.resolver_match.url_name if request.resolver_match else None
        is_own_page = str(page).startswith(f"{self.opts.app_label}_{self.opts.model_name}_")
        return not is_own_page and super().has_delete_permission(request, row)


class NamedOnceAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # likewise
    """Slugs stand in queue names and rows: once given they stay."""

    def get_readonly_fields(self, request: HttpRequest, row: Row | None = None) -> tuple[str, ...]:
        """The slug too, of what is there already."""
        fields = tuple(str(field) for field in super().get_readonly_fields(request, row))
        return (*fields, "slug") if row else fields


@admin.register(Tier)
class TierAdmin(NamedOnceAdmin):
    """What each class of users may do. Limits are read at each request: a change holds from the next one on."""

    list_display = (
        *("name", "slug", "weight", "budget_tokens", "refill_tokens_per_hour", "concurrency", "max_output_tokens"),
        *("chat_turns", "queue_depth", "queue_deadline_s", "shed_at_percent"),
    )
    fieldsets = (
        (None, {"fields": ("slug", "name", "usable_models")}),
        (
            "Each user",
            {
                "description": "An override on the user's own page goes before these.",
                "fields": (
                    *("budget_tokens", "refill_tokens_per_hour", "concurrency", "max_output_tokens"),
                    "chat_turns",
                ),
            },
        ),
        (
            "All users of the tier together",
            {"fields": ("weight", "queue_depth", "queue_deadline_s", "shed_at_percent")},
        ),
    )
    readonly_fields = ("usable_models",)

    @admin.display(description="models")
    def usable_models(self, tier: Tier) -> str:
        """Those whose own page lets the tier use them."""
        return ", ".join(map(str, tier.models.all())) or "none; set on each model's page"


@admin.register(Model)
class ModelAdmin(NamedOnceAdmin):
    """Which models are served, how they are prompted, and to whom."""

    list_display = (
        *("name", "slug", "context_window", "max_output_tokens", "queue_depth", "cached_token_percent"),
        *("temperature", "is_active", "is_default"),
    )
    list_filter = ("is_active", "tiers")
    filter_horizontal = ("tiers",)
    fieldsets = (
        (None, {"fields": ("slug", "name", "source", "is_active", "is_default")}),
        ("To whom, and how many", {"fields": ("tiers", "queue_depth", "cached_token_percent")}),
        ("Answers", {"fields": ("context_window", "max_output_tokens", "system_prompt", "temperature", "top_p")}),
    )


class OverrideInline(admin.StackedInline):  # type: ignore[type-arg]  # likewise
    """A user's own limits, on the user's page."""

    model = Override
    verbose_name_plural = "override: a number left empty is the tier's"
    fields = (
        *("until", "budget_tokens", "refill_tokens_per_hour", "concurrency", "max_output_tokens"),
        "reason",
    )

    def get_formset(self, request: HttpRequest, obj: Row | None = None, **kwargs: Any) -> Any:
        """One that refuses a second override, and says so: a user has one."""
        return super().get_formset(request, obj, **{"validate_max": True, **kwargs})


class TodaysUse(admin.TabularInline):  # type: ignore[type-arg]  # likewise
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

    list_display = ("day", "user", "model", *COUNTS)
    list_filter = ("day", "model", "user__tier")
    list_select_related = ("user", "model")
    search_fields = ("user__username",)
    date_hierarchy = "day"
