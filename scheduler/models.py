"""What an operator sets: tiers, and the models they may use."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Self

from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q

from scheduler.errors import ModelUnknown

SLUG = re.compile(r"^[A-Za-z0-9._-]+\Z")


class Tier(models.Model):
    """A class of users, Free, Plus or Pro at first; an operator can add one."""

    slug = models.SlugField(primary_key=True, max_length=32, help_text="In queue names: never change it.")
    name = models.CharField(max_length=64)
    weight = models.PositiveIntegerField(
        default=1, validators=[MinValueValidator(1)], help_text="Share of the GPUs beside the other tiers."
    )
    concurrency = models.PositiveIntegerField(
        default=2, validators=[MinValueValidator(1)], help_text="Live runs a user may have."
    )
    max_output_tokens = models.PositiveIntegerField(
        default=512, validators=[MinValueValidator(1)], help_text="The longest answer, in tokens."
    )

    class Meta:
        ordering = ("weight", "slug")
        constraints = (
            models.CheckConstraint(
                condition=Q(weight__gte=1, concurrency__gte=1, max_output_tokens__gte=1), name="tier_limits_positive"
            ),
        )

    def __str__(self) -> str:
        return self.name


class ModelQuerySet(models.QuerySet["Model"]):
    def usable_by(self, tier_slug: str) -> Self:
        """Active models that the tier may use."""
        return self.filter(is_active=True, tiers=tier_slug)

    def pick(self, tier_slug: str, slug: str | None = None) -> Model:
        """The model of that name, or the default one. Raises `ModelUnknown`, also when the tier may not use it."""
        # Text that no slug can be must not reach the database, which takes neither a NUL nor half a surrogate pair.
        if slug is not None and not SLUG.match(slug):
            raise ModelUnknown(slug)
        wanted = Q(is_default=True) if slug is None else Q(slug=slug)
        model = self.usable_by(tier_slug).filter(wanted).first()
        if model is None:
            raise ModelUnknown(slug)
        return model


class Model(models.Model):
    """A served model: where its files are, how it is prompted, who may use it."""

    slug = models.CharField(
        primary_key=True,
        max_length=64,
        validators=[RegexValidator(SLUG.pattern)],
        help_text="In queue names: never change it.",
    )
    name = models.CharField(max_length=128)
    source = models.CharField(max_length=1024, help_text="Local folder with the weights, tokenizer and chat template.")
    context_window = models.PositiveIntegerField(
        validators=[MinValueValidator(16)], help_text="Prompt and answer together, in tokens."
    )
    max_output_tokens = models.PositiveIntegerField(default=512, validators=[MinValueValidator(1)])
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
        )

    def __str__(self) -> str:
        return self.name
