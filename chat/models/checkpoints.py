"""What workers put by of runs under way."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models

from chat.models.runs import Run


class Checkpoint(models.Model):
    """A piece of a live run's answer, with the token ids it came from: readers and the next attempt need no stream.

    Written when leases are renewed, each only what is new; swept away once the run has ended.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="checkpoints", db_index=False)
    attempt = models.PositiveIntegerField()
    offset = models.PositiveIntegerField(help_text="Code points before this text; what stood from there on is void.")
    text = models.TextField()
    token_ids = ArrayField(models.IntegerField())

    class Meta:
        constraints = (models.UniqueConstraint(fields=("run", "attempt", "offset"), name="checkpoint_once"),)

    def __str__(self) -> str:
        return f"{self.run_id} {self.attempt}-{self.offset}"
