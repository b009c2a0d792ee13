"""Runs: where each stands and how it went; ending them, and having them done again."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import mark_safe

from chat import audit, cancelling, problems
from chat.admin.filters import AgeFilter, WorkerFilter
from chat.admin.finding import FoundAdmin
from chat.admin.retrying import AT_ONCE, retry
from chat.models import LIVE, Run
from scheduler import links
from scheduler.admin import PartAdmin
from scheduler.auto import Reason


@admin.register(Run)
class RunAdmin(FoundAdmin, PartAdmin):
    """Deleted by itself a run would be charged to nobody, and in no ledger.

    Filters by state, tier, model and kind read from the latest run on until the page is full, and until enough are
    counted: where few runs match, the whole table (0.7 s with a million). With an age they read no further back.
    """

    ids = ("id", "chat_id", "prompt_id", "answer_id")
    owner = "chat__owner"
    linked_by = ("chat__owner__id__exact",)
    list_display = (
        *("id", "status", "whose", "chat_link", "kind", "model", "tier", "worker", "attempt"),
        *("input_tokens", "cached_tokens", "output_tokens", "charged_tokens", "error_code"),
        *("created_at", "released_at", "started_at", "first_token_at", "finished_at"),
    )
    fieldsets = (
        (
            None,
            {"fields": ("id", "whose", "chat_link", "prompt_link", "answer_link", "kind", "served", "chosen", "tier")},
        ),
        ("Where it stands", {"fields": ("status", "attempt", "hand_backs", "worker", "lease_until", "resumed_at")}),
        (
            "When",
            {
                "fields": (
                    *("created_at", "released_at", "started_at", "first_token_at", "finished_at"),
                    "cancel_requested_at",
                )
            },
        ),
        (
            "Tokens",
            {"fields": ("input_tokens", "cached_tokens", "output_tokens", "max_output_tokens", "charged_tokens")},
        ),
        ("How it ended", {"fields": ("finish_reason", "error_code", "error_detail")}),
        (
            "What its prompt is made of",
            {"fields": ("epoch", "first_position", "left_out", "warm_worker", "warm_tokens", "route")},
        ),
    )
    readonly_fields = ("whose", "chat_link", "prompt_link", "answer_link", "served", "chosen")
    list_filter = ("status", AgeFilter, "tier", "model", "kind", WorkerFilter)
    ordering = ("-id",)
    actions = ("cancel", "retry")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """A chat's title is not read with it."""
        return (
            super().get_queryset(request).select_related("chat__owner", "model", "version", "tier").defer("chat__title")
        )

    @admin.display(description="owner", ordering="chat__owner__username")
    def whose(self, run: Run) -> str:
        """To the user's page."""
        return links.to_row("chat_user", run.chat.owner_id, run.chat.owner)

    @admin.display(description="chat", ordering="chat_id")
    def chat_link(self, run: Run) -> str:
        """To its chat's page."""
        return links.to_row("chat_chat", run.chat_id)

    @admin.display(description="model")
    def served(self, run: Run) -> str:
        """To its page, and to that of the version which served the run."""
        model = links.to_row("scheduler_model", run.model_id, run.model)
        if run.version is None:
            return model
        return links.together(model, links.to_row("scheduler_modelversion", run.version_id, run.version))

    @admin.display(description="prompt")
    def prompt_link(self, run: Run) -> str:
        """To the message that it answers."""
        return links.to_row("chat_message", run.prompt_id)

    @admin.display(description="answer")
    def answer_link(self, run: Run) -> str:
        """To the message that it wrote."""
        return links.to_row("chat_message", run.answer_id)

    @admin.display(description="chosen by Auto")
    def chosen(self, run: Run) -> str:
        """Why Auto chose its model."""
        reason = Reason.read(run.auto)
        return reason.in_words if reason else "no"

    @admin.action(description="Cancel the selected runs", permissions=["cancel"])
    def cancel(self, request: HttpRequest, runs: QuerySet[Run]) -> None:
        """Stop those that are live."""
        selected, live = runs.count(), list(Run.objects.filter(pk__in=runs.filter(status__in=LIVE).values("pk")))
        for run in live:
            audit.cancel_asked(run)
            with suppress(problems.NotFound):  # its chat has just been deleted, and it is dismissed
                cancelling.cancel(run)
        over = selected - len(live)
        self.message_user(request, f"{len(live)} told to stop.{f' {over} had ended.' if over else ''}")

    @admin.action(description="Retry the selected runs, for their owners", permissions=["retry"])
    def retry(self, request: HttpRequest, runs: QuerySet[Run]) -> None:
        """As their owners may: of those that failed or were cancelled. Says why of each that it does not."""
        selected = list(runs.select_related("chat__owner__tier", "chat__owner__override", "prompt")[: AT_ONCE + 1])
        if len(selected) > AT_ONCE:
            self.message_user(request, f"None retried: select {AT_ONCE} at most.", messages.ERROR)
            return
        refused = [(run.pk, refusal) for run in selected if (refusal := retry(run))]
        self.message_user(request, f"{len(selected) - len(refused)} of {len(selected)} retried.")
        if refused:
            lines = format_html_join(mark_safe("<br>"), "{}: {}", refused)
            text = format_html("{} not retried, as their owners would have been told:<br>{}", len(refused), lines)
            self.message_user(request, text, messages.WARNING)

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Who may delete runs with their chat may stop them."""
        return request.user.has_perm("chat.delete_run")

    def has_retry_permission(self, request: HttpRequest) -> bool:
        """Another run is added."""
        return request.user.has_perm("chat.add_run")
