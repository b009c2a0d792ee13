"""What Celery's messages start."""

from __future__ import annotations

from uuid import UUID

from celery import shared_task

from chat.generation import Attempts
from inference.pool import CoroutineTask
from scheduler.dispatch import TASK


@shared_task(base=CoroutineTask, name=TASK)
async def generate(attempts: Attempts, run_id: str) -> int:
    """Produce a run's message; returns its charge. The row, not the message, says if there is something to do."""
    return await attempts.run(UUID(run_id))
