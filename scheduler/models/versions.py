"""What a model's workers load: its versions, how they change from one to another, and who serves which."""

from __future__ import annotations

from typing import Any, Self

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models, transaction
from django.db.models import Max, Q
from django.db.models.functions import Now

from inference.engine_arguments import DTYPES, GUESSERS, KV_CACHE_DTYPES, QUANTIZATIONS, EngineArguments
from inference.sources import Source, SourceError
from inference.sources.source import Kind
from scheduler.models.tiers import AT_LEAST_ONE, Model


def _choices(values: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(value, value) for value in values]


class ModelVersion(models.Model):
    """What workers load for a model: files and engine arguments. It stays as it is from its first rollout on."""

    class State(models.TextChoices):
        """One of a model's versions is active at most."""

        STAGED = "staged", "Staged"
        ACTIVE = "active", "Active"
        RETIRED = "retired", "Retired"

    model = models.ForeignKey(Model, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField(editable=False)
    source = models.CharField(
        max_length=1024,
        help_text="Folder on every machine, hub id such as Qwen/Qwen3-0.6B, or s3://bucket/prefix: with safetensors, "
        "tokenizer.json and chat template.",
    )
    revision = models.CharField(
        max_length=128, blank=True, help_text="Of a hub id: a branch, tag or commit. Its first load pins the commit."
    )
    digest = models.CharField(
        max_length=64, blank=True, editable=False, help_text="SHA-256 over its files, by whoever loaded it first."
    )
    manifest = models.JSONField(null=True, blank=True, editable=False)
    context_window = models.PositiveIntegerField(
        validators=[MinValueValidator(16)],
        help_text="Prompt and answer together, in tokens (vLLM's max_model_len).",
    )
    dtype = models.CharField(
        max_length=16, blank=True, choices=_choices(DTYPES), help_text="Empty: float32 on a CPU, else the files' own."
    )
    quantization = models.CharField(
        max_length=32, blank=True, choices=_choices(QUANTIZATIONS), help_text="Empty: as the files say."
    )
    max_num_seqs = models.PositiveIntegerField(
        null=True, blank=True, validators=AT_LEAST_ONE, help_text="Slots. Empty: the worker's SLOTS."
    )
    gpu_memory_utilization = models.DecimalField(
        max_digits=3,
        decimal_places=2,
        null=True,
        blank=True,
        validators=[MinValueValidator(0.05), MaxValueValidator(1)],
        help_text="Share of the GPU's memory for weights and KV cache. Empty: the worker's GPU_MEMORY_UTILIZATION.",
    )
    kv_cache_dtype = models.CharField(
        max_length=16, blank=True, choices=_choices(KV_CACHE_DTYPES), help_text="Empty: as the weights."
    )
    enable_prefix_caching = models.BooleanField(
        default=True, help_text="Without it every turn computes its whole chat."
    )
    tensor_parallel_size = models.PositiveSmallIntegerField(
        default=1, validators=AT_LEAST_ONE, help_text="GPUs that share each layer."
    )
    pipeline_parallel_size = models.PositiveSmallIntegerField(
        default=1, validators=AT_LEAST_ONE, help_text="GPUs, or groups of them, that share the layers."
    )
    speculative_method = models.CharField(
        max_length=16, blank=True, choices=_choices(GUESSERS), help_text="Speculative decoding. Empty: none."
    )
    num_speculative_tokens = models.PositiveSmallIntegerField(
        null=True, blank=True, validators=[*AT_LEAST_ONE, MaxValueValidator(32)], help_text="Guessed at a time."
    )
    speculative_model = models.CharField(
        max_length=1024, blank=True, help_text="Folder or hub id of the draft model, for methods that have one."
    )
    state = models.CharField(max_length=16, choices=State.choices, default=State.STAGED, editable=False)
    problem = models.TextField(blank=True, editable=False, help_text="Why its last rollout was rolled back.")
    note = models.CharField(max_length=200, blank=True, help_text="For other operators.")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        verbose_name = "model version"
        ordering = ("model", "-number")
        constraints = (
            models.UniqueConstraint(fields=("model", "number"), name="version_number_once"),
            models.UniqueConstraint(fields=("model",), condition=Q(state="active"), name="one_active_version_a_model"),
        )

    def __str__(self) -> str:
        return f"{self.model_id} version {self.number}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """A new one takes the next number."""
        if self.number:
            super().save(*args, **kwargs)
            return
        with transaction.atomic():
            Model.objects.select_for_update(no_key=True).get(pk=self.model_id)
            last = ModelVersion.objects.filter(model=self.model_id).aggregate(last=Max("number"))["last"]
            self.number = (last or 0) + 1
            super().save(*args, **kwargs)

    def clean(self) -> None:
        """Raises `ValidationError`: no such kind of source, no room for the longest answer, half a speculation."""
        self._check_source()
        model = Model.objects.filter(pk=self.model_id).first()
        if model and self.context_window and self.context_window <= model.max_output_tokens:
            reason = f"Answers may have {model.max_output_tokens} tokens: leave some more for the prompt."
            raise ValidationError({"context_window": reason})
        needs_model = self.speculative_method in {"draft_model", "eagle", "eagle3"}
        if needs_model and not self.speculative_model:
            raise ValidationError({"speculative_model": "This method asks a draft model: name it."})
        if self.speculative_model and not needs_model:
            raise ValidationError({"speculative_model": "This method has no draft model: leave it empty."})
        if self.num_speculative_tokens and not self.speculative_method:
            raise ValidationError({"num_speculative_tokens": "Without a method nothing is guessed: leave it empty."})

    def _check_source(self) -> None:
        try:
            source = Source.parse(self.source)
        except SourceError as error:
            raise ValidationError({"source": str(error)}) from error
        if source.kind is Kind.LOCAL and not self.source.strip().startswith("/"):
            raise ValidationError({"source": "Give the folder from the root on: workers have other working folders."})
        self.source = str(source)
        if self.revision and source.kind is not Kind.HUB:
            raise ValidationError(
                {"revision": "Only hub ids have one. Give other files a folder or prefix of their own."}
            )

    @property
    def engine_arguments(self) -> EngineArguments:
        """As a worker hands them to its engine."""
        share = self.gpu_memory_utilization
        return EngineArguments(
            dtype=self.dtype,
            quantization=self.quantization,
            max_num_seqs=self.max_num_seqs,
            gpu_memory_utilization=None if share is None else float(share),
            kv_cache_dtype=self.kv_cache_dtype,
            enable_prefix_caching=self.enable_prefix_caching,
            tensor_parallel_size=self.tensor_parallel_size,
            pipeline_parallel_size=self.pipeline_parallel_size,
            speculative_method=self.speculative_method,
            num_speculative_tokens=self.num_speculative_tokens,
            speculative_model=self.speculative_model,
        )


class RolloutQuerySet(models.QuerySet["Rollout"]):
    def open(self) -> Self:
        """Those that have not ended; one a model at most."""
        return self.filter(ended_at=None)


class Rollout(models.Model):
    """A model's way from one version to another, one worker at a time; the first failure sends all of them back."""

    class State(models.TextChoices):
        """The last two are ends."""

        RUNNING = "running", "Running"
        ROLLING_BACK = "rolling_back", "Rolling back"
        DONE = "done", "Done"
        ROLLED_BACK = "rolled_back", "Rolled back"

    version = models.ForeignKey(ModelVersion, on_delete=models.CASCADE, related_name="rollouts")
    model = models.ForeignKey(Model, on_delete=models.CASCADE, related_name="rollouts")
    previous = models.ForeignKey(ModelVersion, on_delete=models.CASCADE, related_name="+", null=True, blank=True)
    state = models.CharField(max_length=16, choices=State.choices, default=State.RUNNING)
    reason = models.TextField(blank=True, help_text="Why it is rolled back.")
    started_by = models.CharField(max_length=150, blank=True)
    started_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True, blank=True)

    objects = RolloutQuerySet.as_manager()

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(fields=("model",), condition=Q(ended_at=None), name="one_open_rollout_a_model"),
            models.CheckConstraint(
                condition=Q(state__in=("running", "rolling_back"), ended_at=None)
                | Q(state__in=("done", "rolled_back"), ended_at__isnull=False),
                name="rollout_ended_at_its_end",
            ),
        )

    def __str__(self) -> str:
        return f"{self.version}: {self.get_state_display().lower()}"

    @property
    def goal(self) -> ModelVersion | None:
        """The version that workers are to come to now; None back from a model's first one."""
        return self.version if self.state in {self.State.RUNNING, self.State.DONE} else self.previous

    @property
    def goal_id(self) -> int | None:
        """Its key."""
        return self.goal.pk if self.goal else None


class Worker(models.Model):
    """A worker of a model, as it says of itself every few seconds; a silent one is forgotten after a while."""

    class Phase(models.TextChoices):
        """How far it is with its version. `draining`: what runs is finished, then it comes back with another."""

        FETCHING = "fetching", "Fetching files"
        LOADING = "loading", "Loading"
        PROBING = "probing", "Answering a probe"
        SERVING = "serving", "Serving"
        DRAINING = "draining", "Draining"
        FAILED = "failed", "Failed"

    name = models.CharField(primary_key=True, max_length=128)
    model = models.ForeignKey(Model, on_delete=models.CASCADE, related_name="workers")
    version = models.ForeignKey(
        ModelVersion, on_delete=models.CASCADE, related_name="workers", help_text="Serves it, or is on the way to it."
    )
    target = models.ForeignKey(
        ModelVersion, on_delete=models.CASCADE, related_name="+", null=True, help_text="Shall serve it."
    )
    phase = models.CharField(max_length=16, choices=Phase.choices)
    detail = models.CharField(max_length=500, blank=True)
    since = models.DateTimeField(db_default=Now(), help_text="In this phase.")
    seen_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    @property
    def is_serving_its_target(self) -> bool:
        """Whether nothing is to be done with it."""
        return self.phase == self.Phase.SERVING and self.version_id == self.target_id
