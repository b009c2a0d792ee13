"""Versions of models: staging one, rolling it out, and watching how far that is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, cast

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Model as Row
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.views.decorators.http import require_POST

from scheduler import links, rollouts
from scheduler.admin.read_only import ReadOnlyAdmin
from scheduler.deleting import Deleted, KeptAdmin
from scheduler.models import Model, ModelVersion, Rollout, Worker

FILES = ("source", "revision")
ENGINE = (
    *("context_window", "max_num_seqs", "gpu_memory_utilization", "dtype", "quantization", "kv_cache_dtype"),
    *("enable_prefix_caching", "tensor_parallel_size", "pipeline_parallel_size"),
    *("speculative_method", "num_speculative_tokens", "speculative_model"),
)
DIGEST_SHOWN = 12


@admin.register(ModelVersion)
class VersionAdmin(KeptAdmin):
    """What workers load. From its first rollout on a version stays as it is: another one is staged instead."""

    change_form_template = "admin/version_form.html"
    list_display = ("__str__", "state", "source", "revision", "context_window", "files", "served_by", "problem", "note")
    list_filter = ("state", "model")
    list_select_related = ("model",)
    readonly_fields = ("state", "problem", "digest", "rollouts", "served_by")
    fieldsets = (
        (None, {"fields": ("model", "state", "problem", "rollouts", "served_by", "note")}),
        ("Files", {"fields": (*FILES, "digest")}),
        (
            "Engine arguments",
            {"description": "By vLLM's names. What is left empty, the worker's settings say.", "fields": ENGINE},
        ),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Row]:
        """With their workers; without their files' names, of which there may be hundreds."""
        return super().get_queryset(request).prefetch_related("workers").defer("manifest")

    def get_readonly_fields(self, request: HttpRequest, version: Row | None = None) -> tuple[str, ...]:
        """Everything that a worker may have loaded; the model once it is chosen."""
        fields = tuple(str(field) for field in super().get_readonly_fields(request, version))
        if version is None:
            return fields
        used = (*FILES, *ENGINE) if _was_rolled_out(cast(ModelVersion, version)) else ()
        return (*fields, "model", *used)

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """As the model's active version, of which something is to be another."""
        wishes: dict[str, Any] = dict(super().get_changeform_initial_data(request))
        model = Model.objects.select_related("version").filter(pk=wishes.get("model")).first()
        if model is None or model.version is None:
            return wishes
        return {name: getattr(model.version, name) for name in (*FILES, *ENGINE)} | wishes

    def has_delete_permission(self, request: HttpRequest, version: Row | None = None) -> bool:
        """Not of one that is served, or is about to be."""
        is_needed = version is not None and _is_needed(cast(ModelVersion, version))
        return super().has_delete_permission(request, version) and not is_needed

    def get_deleted_objects(self, objs: Iterable[Row], request: HttpRequest) -> Deleted:
        """Of several at once too: the list's own action asks about no row."""
        versions = list(objs)
        shown, counts, forbidden, kept = super().get_deleted_objects(versions, request)
        needed = [
            f"{version}: served, or being rolled out" for version in versions if _is_needed(cast(ModelVersion, version))
        ]
        return shown, counts, forbidden, [*kept, *needed]

    def has_activate_permission(self, request: HttpRequest) -> bool:
        """Who may begin rollouts."""
        return request.user.has_perm("scheduler.add_rollout")

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """With a button beside Save, for who may press it."""
        return super().render_change_form(
            request, {**context, "may_activate": self.has_activate_permission(request)}, *args, **kwargs
        )

    def response_add(self, request: HttpRequest, version: Any, post_url_continue: str | None = None) -> HttpResponse:
        """To the rollout, where it is activated at once."""
        return self._activated(request, version) or super().response_add(request, version, post_url_continue)

    def response_change(self, request: HttpRequest, version: Any) -> HttpResponse:
        """Likewise."""
        return self._activated(request, version) or super().response_change(request, version)

    def _activated(self, request: HttpRequest, version: ModelVersion) -> HttpResponse | None:
        if "_activate" not in request.POST:
            return None
        if not self.has_activate_permission(request):
            raise PermissionDenied
        try:
            rollout = rollouts.activate(version, request.user.get_username())
        except rollouts.RolloutRefused as refused:
            self.message_user(request, str(refused), messages.ERROR)
            return HttpResponseRedirect(reverse("admin:scheduler_modelversion_change", args=[version.pk]))
        return HttpResponseRedirect(reverse("admin:scheduler_rollout_change", args=[rollout.pk]))

    @admin.display(description="digest", ordering="digest")
    def files(self, version: ModelVersion) -> str:
        """The beginning."""
        return version.digest[:DIGEST_SHOWN] or links.NOTHING

    @admin.display
    def served_by(self, version: ModelVersion) -> str:
        """Its workers."""
        serving = [worker.name for worker in version.workers.all() if worker.phase == Worker.Phase.SERVING]
        return ", ".join(serving) or links.NOTHING

    @admin.display
    def rollouts(self, version: ModelVersion) -> str:
        """To each."""
        each = (links.to_row("scheduler_rollout", one.pk, one.get_state_display()) for one in version.rollouts.all())
        return links.together(*each) or links.NOTHING


@admin.register(Rollout)
class RolloutAdmin(ReadOnlyAdmin):
    """How far a model's workers are on their way to another version."""

    change_form_template = "admin/rollout.html"
    list_display = ("__str__", "state", "reason", "previous", "started_by", "started_at", "ended_at")
    list_filter = ("state", "model")
    list_select_related = ("version", "previous")
    fields = ("version_link", "previous_link", "state", "reason", "started_by", "started_at", "ended_at")
    readonly_fields = ("version_link", "previous_link")

    def has_delete_permission(self, _request: HttpRequest, _row: Row | None = None) -> bool:
        """They are what happened."""
        return False

    def get_urls(self) -> list[URLPattern]:
        """With one to turn round."""
        back = path("<int:pk>/roll-back/", self.admin_site.admin_view(self.roll_back), name="scheduler_rollout_back")
        return [back, *super().get_urls()]

    @method_decorator(require_POST)
    def roll_back(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Send all workers back to the version before."""
        if not request.user.has_perm("scheduler.add_rollout"):
            raise PermissionDenied
        rollout = get_object_or_404(Rollout, pk=pk)
        rollouts.roll_back(rollout, f"Rolled back by {request.user.get_username()}.")
        return HttpResponseRedirect(reverse("admin:scheduler_rollout_change", args=[pk]))

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """With the model's workers."""
        shown = dict(context)
        if rollout := context.get("original"):
            workers = list(Worker.objects.filter(model=rollout.model_id).select_related("version"))
            shown |= {
                "workers": workers,
                "there": sum(each.is_serving_its_target and each.target_id == rollout.goal_id for each in workers),
                "goal": rollout.goal,
                "is_open": rollout.ended_at is None,
                "may_turn_round": rollout.state == Rollout.State.RUNNING
                and request.user.has_perm("scheduler.add_rollout"),
            }
        return super().render_change_form(request, shown, *args, **kwargs)

    @admin.display(description="version")
    def version_link(self, rollout: Rollout) -> str:
        """To its page."""
        return links.to_row("scheduler_modelversion", rollout.version_id, rollout.version)

    @admin.display(description="from")
    def previous_link(self, rollout: Rollout) -> str:
        """To the page of the one before."""
        return links.to_row("scheduler_modelversion", rollout.previous_id, rollout.previous)


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    """Workers as they say of themselves every two seconds; one that has been silent for an hour is forgotten."""

    list_display = ("name", "model", "version", "target", "phase", "detail", "since", "seen_at")
    list_filter = ("model", "phase")
    list_select_related = ("model", "version", "target")
    linked_by: ClassVar = ("model__slug__exact",)

    def has_delete_permission(self, _request: HttpRequest, _row: Row | None = None) -> bool:
        """They go by themselves."""
        return False


def _was_rolled_out(version: ModelVersion) -> bool:
    return version.state != ModelVersion.State.STAGED or version.rollouts.exists()


def _is_needed(version: ModelVersion) -> bool:
    is_active = version.state == ModelVersion.State.ACTIVE
    return is_active or Rollout.objects.open().filter(model=version.model_id, version=version).exists()
