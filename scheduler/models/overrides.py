"""What an operator grants, or takes from, one user for a time."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q
from django.utils import timezone

from scheduler.models.tiers import AT_LEAST_ONE, IN_A_BUCKET, MOST_TOKENS


class Override(models.Model):
    """A user's own limits until a date; what is left empty is the tier's."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, related_name="override"
    )
    until = models.DateTimeField(help_text="From then on the tier's limits hold again.")
    budget_tokens = models.PositiveIntegerField(null=True, blank=True, validators=IN_A_BUCKET)
    refill_tokens_per_hour = models.PositiveIntegerField(null=True, blank=True, validators=IN_A_BUCKET)
    concurrency = models.PositiveIntegerField(null=True, blank=True, validators=AT_LEAST_ONE)
    max_output_tokens = models.PositiveIntegerField(null=True, blank=True, validators=AT_LEAST_ONE)
    reason = models.CharField(max_length=200, blank=True, help_text="For other operators.")

    class Meta:
        constraints = (
            models.CheckConstraint(
                # A comparison with NULL is not false.
                condition=Q(
                    Q(budget_tokens__isnull=True) | Q(budget_tokens__range=(1, MOST_TOKENS)),
                    Q(refill_tokens_per_hour__isnull=True) | Q(refill_tokens_per_hour__range=(1, MOST_TOKENS)),
                    Q(concurrency__isnull=True) | Q(concurrency__gte=1),
                    Q(max_output_tokens__isnull=True) | Q(max_output_tokens__gte=1),
                ),
                name="override_limits_in_range",
            ),
        )

    def __str__(self) -> str:
        # A row that was just deleted has lost its key, which here is its user.
        whose = f"{self.user}'s" if self.pk else "override"
        return f"{whose} until {self.until}"

    def clean(self) -> None:
        """Raises `ValidationError` for an override of nothing, and for a new end that has passed."""
        if self.until and not self.is_in_force(timezone.now()) and self._has_new_end():
            raise ValidationError({"until": "This has passed. Set a date to come, or delete the override."})
        numbers = (self.budget_tokens, self.refill_tokens_per_hour, self.concurrency, self.max_output_tokens)
        if all(number is None for number in numbers):
            raise ValidationError("Set at least one number, or delete the override.")

    def _has_new_end(self) -> bool:
        """Whether no end of the same second is stored: a page's fields have no parts of one."""
        second = self.until.replace(microsecond=0)
        stored = Override.objects.filter(pk=self.pk, until__gte=second, until__lt=second + timedelta(seconds=1))
        return not stored.exists()

    def is_in_force(self, now: datetime) -> bool:
        """Whether its end date has not come."""
        return now < self.until
