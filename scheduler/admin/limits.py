"""Tiers, models, rules of Auto and overrides: the numbers that operators turn."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Model as Row
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from scheduler import links
from scheduler.deleting import KeptAdmin
from scheduler.models import Model, Override, RoutingRule, Tier


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
    readonly_fields = ("source", "context_window", "versions", "rollouts_and_workers", "runs")
    fieldsets = (
        (None, {"fields": ("slug", "name", "is_active", "is_default", "runs")}),
        (
            "What is served",
            {
                "description": "Files, window and engine arguments are a version's: stage another, and activate it.",
                "fields": ("source", "context_window", "versions", "rollouts_and_workers"),
            },
        ),
        ("To whom, and how many", {"fields": ("tiers", "queue_depth", "cached_token_percent")}),
        ("Answers", {"fields": ("max_output_tokens", "system_prompt", "temperature", "top_p")}),
    )

    def save_model(self, request: HttpRequest, model: Any, form: Any, change: bool) -> None:
        """What the form has: a rollout that ends meanwhile writes the rest of the row."""
        if change:
            columns = {field.name for field in model._meta.concrete_fields}
            model.save(update_fields=columns.intersection(form.cleaned_data))
        else:
            super().save_model(request, model, form, change)

    @admin.display
    def versions(self, model: Model) -> str:
        """To each, the latest first, and to a new one."""
        if not model.pk:
            return "stage the first one when the model is saved"
        new = reverse("admin:scheduler_modelversion_add")
        each = (
            links.to_row(
                "scheduler_modelversion",
                version.pk,
                f"{version.number} ({'rolled back' if version.problem else version.state})",
            )
            for version in model.versions.only("number", "state", "problem", "model")
        )
        return links.together(*each, format_html('<a href="{}?model={}">stage another</a>', new, model.pk))

    @admin.display(description="rolled out")
    def rollouts_and_workers(self, model: Model) -> str:
        """Lists of them."""
        if not model.pk:
            return links.NOTHING
        of_model = {"model__slug__exact": model.pk}
        return links.together(
            links.to_list("scheduler_rollout", "rollouts", **of_model),
            links.to_list("scheduler_worker", "workers", **of_model),
        )

    @admin.display
    def runs(self, model: Model) -> str:
        """A list of its own."""
        return links.to_list("chat_run", "runs", model__slug__exact=model.pk) if model.pk else links.NOTHING


@admin.register(RoutingRule)
class RoutingRuleAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # takes one in the stubs only
    """By which rules Auto chooses. Rules are read at each request: a change holds from the next one on."""

    list_display = ("position", "tier", "most_prompt_tokens", "least_load_percent", "model", "note")
    list_display_links = ("position", "model")
    list_select_related = ("tier", "model")
    fieldsets = (
        (None, {"fields": ("position", "note")}),
        (
            "When",
            {
                "description": "All of them must hold, and one must be given.",
                "fields": ("tier", "most_prompt_tokens", "least_load_percent"),
            },
        ),
        ("Where to", {"fields": ("model",)}),
    )


class OverrideInline(admin.StackedInline):  # type: ignore[type-arg]  # takes one in the stubs only
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
