"""By which rules Auto sends a run to a model, as operators set them."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from scheduler.models.tiers import AT_LEAST_ONE, Model, Tier

MOST_LOAD_PERCENT = 10_000


class RoutingRule(models.Model):
    """One of Auto's: the first of which all conditions hold decides, and where none does the default model answers."""

    position = models.PositiveSmallIntegerField(default=1, help_text="The lowest is looked at first.")
    tier = models.ForeignKey(
        Tier,
        on_delete=models.PROTECT,
        related_name="+",
        null=True,
        blank=True,
        help_text="Whose runs it is for; empty: those of all tiers.",
    )
    most_prompt_tokens = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=AT_LEAST_ONE,
        help_text="It holds for prompts of so many tokens at most, the chat so far included; empty: for any.",
    )
    least_load_percent = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(MOST_LOAD_PERCENT)],
        help_text="It holds from this load of the default model on: 100 is full, 200 that as many wait; empty: always.",
    )
    model = models.ForeignKey(
        Model,
        on_delete=models.PROTECT,
        related_name="rules",
        help_text="Which answers. Passed over where the tier may not use it, or it has no room for the whole chat.",
    )
    note = models.CharField(max_length=200, blank=True, help_text="For operators.")

    class Meta:
        ordering = ("position", "id")
        constraints = (
            models.CheckConstraint(
                condition=Q(tier__isnull=False)
                | Q(most_prompt_tokens__isnull=False)
                | Q(least_load_percent__isnull=False),
                name="rule_has_a_condition",
                violation_error_message=(
                    "Give it a tier, a number of tokens or a load: no other rule would ever be looked at behind it. "
                    "What answers whatever is asked is the default model."
                ),
            ),
            models.CheckConstraint(
                condition=(Q(most_prompt_tokens=None) | Q(most_prompt_tokens__gte=1))
                & (Q(least_load_percent=None) | Q(least_load_percent__range=(1, MOST_LOAD_PERCENT))),
                name="rule_conditions_in_range",
            ),
        )

    def __str__(self) -> str:
        return f"{self.position}: {self.conditions}: {self.model_id}"

    @property
    def conditions(self) -> str:
        """In words."""
        parts = (
            f"tier {self.tier_id}" if self.tier_id else "",
            f"prompt of at most {self.most_prompt_tokens} tokens" if self.most_prompt_tokens is not None else "",
            f"load of at least {self.least_load_percent} %" if self.least_load_percent is not None else "",
        )
        return ", ".join(filter(None, parts))
