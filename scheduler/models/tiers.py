"""What an operator sets for all: tiers, and the models they may use."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final, Self

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q

from chatsite.database.prepared import Prepared
from inference.tokens import Tokenizer
from scheduler import prompt_files
from scheduler.errors import ModelUnknown

SLUG = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z")
A_SLUG = RegexValidator(
    SLUG.pattern, "Use letters, digits, dots, underscores and hyphens, and a letter or a digit first."
)
# What a question names to have Auto choose a model: see scheduler/auto.py.
AUTO: Final = "auto"

# A bucket counts in units of 1/3,600,000 token, in Lua, whose numbers are exact to 2**53: 2,501,999,792 tokens.
MOST_TOKENS = 2_000_000_000

AT_LEAST_ONE = [MinValueValidator(1)]
IN_A_BUCKET = [*AT_LEAST_ONE, MaxValueValidator(MOST_TOKENS)]
PERCENT = [MaxValueValidator(100)]


def not_reserved(slug: str) -> None:
    """Raises `ValidationError` for the name that stands for no model."""
    if slug.casefold() == AUTO:
        raise ValidationError("This name is taken: it has the rules of Auto choose a model.")


class Tier(models.Model):
    """A class of users, Free, Plus or Pro at first; an operator can add one."""

    slug = models.SlugField(
        primary_key=True, max_length=32, validators=[A_SLUG], help_text="In queue names: never change it."
    )
    name = models.CharField(max_length=64)
    weight = models.PositiveIntegerField(
        default=1, validators=AT_LEAST_ONE, help_text="Share of the GPUs beside the other tiers."
    )
    concurrency = models.PositiveIntegerField(
        default=2, validators=AT_LEAST_ONE, help_text="Live runs a user may have."
    )
    max_output_tokens = models.PositiveIntegerField(
        default=512, validators=AT_LEAST_ONE, help_text="The longest answer, in tokens."
    )
    # Defaults of the database too: while a release is rolled out, the one before still inserts rows.
    chat_turns = models.PositiveIntegerField(
        default=400,
        db_default=400,
        validators=AT_LEAST_ONE,
        help_text="Questions that one chat may have; behind them a new one begins with its summary.",
    )
    budget_tokens = models.PositiveIntegerField(
        default=100_000, db_default=100_000, validators=IN_A_BUCKET, help_text="What a full budget holds, in tokens."
    )
    refill_tokens_per_hour = models.PositiveIntegerField(
        default=50_000, db_default=50_000, validators=IN_A_BUCKET, help_text="How fast a budget fills again."
    )
    queue_depth = models.PositiveIntegerField(
        default=250,
        db_default=250,
        validators=AT_LEAST_ONE,
        help_text="Runs of this tier that may wait for one model; the next is refused.",
    )
    queue_deadline_s = models.PositiveIntegerField(
        default=300,
        db_default=300,
        validators=AT_LEAST_ONE,
        help_text="A run that has waited so many seconds for a worker ends as failed.",
    )
    shed_at_percent = models.PositiveSmallIntegerField(
        default=100,
        db_default=100,
        validators=[*AT_LEAST_ONE, *PERCENT],
        help_text="Refused once so much of a model's queue depth is taken, but for a few places kept for the tier.",
    )

    class Meta:
        ordering = ("weight", "slug")
        constraints = (
            models.CheckConstraint(
                condition=Q(weight__gte=1, concurrency__gte=1, max_output_tokens__gte=1), name="tier_limits_positive"
            ),
            models.CheckConstraint(
                condition=Q(
                    budget_tokens__range=(1, MOST_TOKENS),
                    refill_tokens_per_hour__range=(1, MOST_TOKENS),
                    chat_turns__gte=1,
                    queue_depth__gte=1,
                    queue_deadline_s__gte=1,
                    shed_at_percent__range=(1, 100),
                ),
                name="tier_budget_and_queue_in_range",
            ),
        )

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Raises `ValidationError` where nobody could ask for the longest answer."""
        if self.budget_tokens and self.max_output_tokens and self.budget_tokens < self.max_output_tokens:
            reason = f"The longest answer takes {self.max_output_tokens} tokens: a full budget must hold them."
            raise ValidationError({"budget_tokens": reason})


class ModelQuerySet(models.QuerySet["Model"]):
    def usable_by(self, tier_slug: str) -> Self:
        """Active models that the tier may use, and that have a version to be served."""
        return self.filter(is_active=True, tiers=tier_slug).exclude(source="")

    def pick(self, tier_slug: str, slug: str | None = None) -> Model:
        """The model of that name, or the default one. Raises `ModelUnknown`, also when the tier may not use it."""
        # Text that no slug can be must not reach the database, which takes neither a NUL nor half a surrogate pair.
        if slug is not None and not SLUG.match(slug):
            raise ModelUnknown(slug)
        model = DEFAULT.first(tier=tier_slug) if slug is None else NAMED.first(tier=tier_slug, slug=slug)
        if model is None:
            raise ModelUnknown(slug)
        return model


class Model(models.Model):
    """A served model: how it is prompted, who may use it. What its workers load is its versions' matter."""

    slug = models.CharField(
        primary_key=True,
        max_length=64,
        validators=[A_SLUG, not_reserved],
        help_text="In queue names: never change it.",
    )
    name = models.CharField(max_length=128)
    # What of the active version a question is counted by: one row is read for it. While a rollout is under way, the
    # smaller of the two windows, so that workers of either can serve what is asked meanwhile.
    version = models.ForeignKey(
        "scheduler.ModelVersion", on_delete=models.SET_NULL, related_name="+", null=True, blank=True, editable=False
    )
    source = models.CharField(max_length=1024, blank=True, editable=False, help_text="Of its active version.")
    context_window = models.PositiveIntegerField(
        default=0, editable=False, help_text="Prompt and answer together, in tokens."
    )
    max_output_tokens = models.PositiveIntegerField(default=512, validators=AT_LEAST_ONE)
    system_prompt = models.TextField(blank=True, help_text="Empty: whatever the model's chat template puts there.")
    temperature = models.DecimalField(
        max_digits=3,
        decimal_places=2,
        default=Decimal("0.70"),
        validators=[MinValueValidator(0), MaxValueValidator(2)],
        help_text="0 is greedy: always the likeliest token.",
    )
    top_p = models.DecimalField(
        max_digits=4,
        decimal_places=3,
        default=Decimal("1.000"),
        validators=[MinValueValidator(Decimal("0.001")), MaxValueValidator(1)],
    )
    queue_depth = models.PositiveIntegerField(
        default=500, db_default=500, validators=AT_LEAST_ONE, help_text="Runs of all tiers that may wait for it."
    )
    cached_token_percent = models.PositiveSmallIntegerField(
        default=25,
        db_default=25,
        validators=PERCENT,
        help_text="What an input token from the prefix cache costs, in percent of another.",
    )
    tiers = models.ManyToManyField(Tier, related_name="models", blank=True, help_text="Who may use it.")
    is_active = models.BooleanField(default=True)
    is_default = models.BooleanField(default=False)

    objects = ModelQuerySet.as_manager()

    class Meta:
        ordering = ("slug",)
        constraints = (
            models.UniqueConstraint(fields=("is_default",), condition=Q(is_default=True), name="one_default_model"),
            models.CheckConstraint(
                condition=Q(temperature__gte=0, temperature__lte=2, top_p__gt=0, top_p__lte=1), name="sampling_in_range"
            ),
            models.CheckConstraint(
                condition=Q(queue_depth__gte=1, cached_token_percent__lte=100), name="model_queue_and_price_in_range"
            ),
            models.CheckConstraint(condition=~Q(slug__iexact=AUTO), name="model_slug_not_reserved"),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def tokenizer(self) -> Tokenizer:
        """Its own, with its chat template; of the version that this row tells of. Raises `TokensError`."""
        return Tokenizer.load(prompt_files.folder_of(self))

    def clean(self) -> None:
        """Raises `ValidationError` where the longest answer leaves no room for a prompt."""
        if self.context_window and self.max_output_tokens and self.max_output_tokens >= self.context_window:
            reason = f"Prompt and answer together have {self.context_window} tokens: leave some for the prompt."
            raise ValidationError({"max_output_tokens": reason})


DEFAULT = Prepared(lambda tier: Model.objects.usable_by(tier).filter(is_default=True), tier="a tier")
NAMED = Prepared(lambda tier, slug: Model.objects.usable_by(tier).filter(slug=slug), tier="a tier", slug="a model")
