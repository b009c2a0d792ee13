"""What was really used, kept for good."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from scheduler.models.tiers import Model

COUNTS = ("runs", "input_tokens", "cached_tokens", "output_tokens", "charged_tokens")


class LedgerEntry(models.Model):
    """A user's ended runs of one model and one day (UTC), those that no worker took left out.

    Written in the transaction that ends a run: it is as exact as the runs themselves, and outlives them.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="ledger", db_index=False)
    day = models.DateField(help_text="UTC.")
    model = models.ForeignKey(Model, on_delete=models.PROTECT, related_name="+", db_index=False)
    runs = models.PositiveIntegerField()
    input_tokens = models.PositiveBigIntegerField()
    cached_tokens = models.PositiveBigIntegerField(help_text="Of the input tokens, those from the prefix cache.")
    output_tokens = models.PositiveBigIntegerField()
    charged_tokens = models.PositiveBigIntegerField(help_text="What they took from the user's budget.")

    class Meta:
        verbose_name_plural = "ledger"
        ordering = ("-day", "user", "model")
        constraints = (models.UniqueConstraint(fields=("user", "day", "model"), name="one_entry_a_user_day_and_model"),)
        indexes = (models.Index(fields=("day",), name="ledger_by_day"),)

    def __str__(self) -> str:
        return f"{self.user_id} {self.day} {self.model_id}"
