"""Tiers, models and overrides: the numbers that operators turn. The ledger: what came of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast

from django.contrib import admin, messages
from django.core.paginator import Paginator
from django.db.models import Model as Row
from django.db.models import QuerySet
from django.db.models.constants import LOOKUP_SEP
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.utils.functional import cached_property

from scheduler import links
from scheduler.deleting import KeptAdmin
from scheduler.models import COUNTS, LedgerEntry, Model, Override, Tier


class CutPaginator(Paginator):  # type: ignore[type-arg]  # likewise
    """Counts so many rows and no further: with a filter that no index serves each row of a long table would be read."""

    MOST = 10_000

    @cached_property
    def count(self) -> int:
        """`MOST` may stand for more."""
        rows = cast("QuerySet[Row]", self.object_list)
        return rows.order_by()[: self.MOST].count()

    @property
    def is_cut(self) -> bool:
        """Whether there may be more."""
        return self.count == self.MOST


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # takes one in the stubs only
    """Rows that only the product writes. Long tables: nothing counts all of their rows.

    `private` columns are read by no list and asked about by no address; `linked_by` are lookups of other pages' links
    beside those that lists filter by.
    """

    private: ClassVar[Sequence[str]] = ()
    linked_by: ClassVar[Sequence[str]] = ()
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    paginator = CutPaginator
    change_list_template = "admin/long_list.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Row]:
        """Without what is private."""
        return super().get_queryset(request).defer(*self.private)

    def lookup_allowed(self, lookup: str, value: Any, request: Any = None) -> bool:
        """Django allows any of the row's own columns: `?content__startswith=` would tell a text letter by letter."""
        if lookup.split(LOOKUP_SEP, maxsplit=1)[0] in self.private:
            return False
        return lookup in self.linked_by or super().lookup_allowed(lookup, value, request)

    def response_action(self, request: HttpRequest, queryset: QuerySet[Row], *args: Any) -> HttpResponse | None:
        """Refuses to act on all rows of a list of which nobody knows how many they are."""
        wants_all = request.POST.get("select_across") == "1"
        if wants_all and CutPaginator(queryset, 1).is_cut:
            text = f"Nothing is done: these may be more than {CutPaginator.MOST:,} rows. Narrow the list first."
            self.message_user(request, text, messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())
        return super().response_action(request, queryset, *args)

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


class NamedOnceAdmin(KeptAdmin):
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
        (None, {"fields": ("slug", "name", "usable_models", "users_and_runs")}),
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
    readonly_fields = ("usable_models", "users_and_runs")

    @admin.display(description="models")
    def usable_models(self, tier: Tier) -> str:
        """Those whose own page lets the tier use them."""
        to_models = (links.to_row("scheduler_model", model.pk, model) for model in tier.models.all())
        return links.together(*to_models) or "none; set on each model's page"

    @admin.display(description="in it")
    def users_and_runs(self, tier: Tier) -> str:
        """Lists of them."""
        if not tier.pk:  # about to be made
            return links.NOTHING
        of_tier = {"tier__slug__exact": tier.pk}
        return links.together(
            links.to_list("chat_user", "users", **of_tier), links.to_list("chat_run", "runs", **of_tier)
        )


@admin.register(Model)
class ModelAdmin(NamedOnceAdmin):
    """Which models are served, how they are prompted, and to whom."""

    list_display = (
        *("name", "slug", "context_window", "max_output_tokens", "queue_depth", "cached_token_percent"),
        *("temperature", "is_active", "is_default"),
    )
    list_filter = ("is_active", "tiers")
    filter_horizontal = ("tiers",)
    readonly_fields = ("runs",)
    fieldsets = (
        (None, {"fields": ("slug", "name", "source", "is_active", "is_default", "runs")}),
        ("To whom, and how many", {"fields": ("tiers", "queue_depth", "cached_token_percent")}),
        ("Answers", {"fields": ("context_window", "max_output_tokens", "system_prompt", "temperature", "top_p")}),
    )

    @admin.display
    def runs(self, model: Model) -> str:
        """A list of its own."""
        return links.to_list("chat_run", "runs", model__slug__exact=model.pk) if model.pk else links.NOTHING


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

    list_display = ("day", "whose", "model", *COUNTS)
    list_filter = ("day", "model", "user__tier")
    list_select_related = ("user", "model")
    search_fields = ("user__username",)
    date_hierarchy = "day"

    @admin.display(description="user", ordering="user__username")
    def whose(self, entry: LedgerEntry) -> str:
        """To the user's page."""
        return links.to_row("chat_user", entry.user_id, entry.user)
