"""Which changes of users and keys are kept in the audit log: what they may do, never a secret nor a text of theirs."""

from __future__ import annotations

from auditlog.models import LogEntry
from auditlog.registry import auditlog
from django.utils import timezone

from chat.models import ApiKey, Run, User


def register() -> None:
    """Log who changes what a user may do, and who revokes a key."""
    rights = {"groups", "user_permissions"}
    auditlog.register(User, include_fields=["tier", "is_active", "is_staff", "is_superuser"], m2m_fields=rights)
    auditlog.register(ApiKey, include_fields=["name", "revoked_at"])


def cancel_asked(run: Run) -> None:
    """Log that a run is told to stop; runs are not registered, since the product itself changes them all the time."""
    asked = {"cancel_requested_at": (str(None), str(timezone.now()))}
    LogEntry.objects.log_create(run, action=LogEntry.Action.UPDATE, changes=asked)
