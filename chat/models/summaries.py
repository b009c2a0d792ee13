"""What a long chat's oldest turns became."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from uuid6 import uuid7

from chat.models.chats import Chat
from chat.models.runs import Run


class Summary(models.Model):
    """One epoch of a chat's rolling summary: never changed, and kept. The latest is in the prompts that come."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    chat = models.ForeignKey(Chat, on_delete=models.CASCADE, related_name="summaries", db_index=False)
    epoch = models.PositiveIntegerField(help_text="Counts from 1.")
    upto = models.PositiveIntegerField(help_text="The last message it covers; 0 in a chat that began with it.")
    text = models.TextField()
    run = models.OneToOneField(
        Run, on_delete=models.SET_NULL, related_name="summary", null=True, blank=True, help_text="Which made it."
    )
    warm_tokens = models.PositiveIntegerField(
        default=0, help_text="Of the prompts that begin with it, as many are in its worker's prefix cache."
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        verbose_name_plural = "summaries"
        ordering = ("chat", "epoch")
        constraints = (models.UniqueConstraint(fields=("chat", "epoch"), name="one_summary_an_epoch"),)

    def __str__(self) -> str:
        return f"{self.chat_id} epoch {self.epoch}"
