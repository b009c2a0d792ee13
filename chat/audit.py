"""What is kept in the audit log of users and their things: what they may do, what operators do with it, no text."""

from __future__ import annotations

from auditlog.models import LogEntry
from auditlog.registry import auditlog
from django.utils import timezone

from chat.models import ApiKey, Chat, Message, Run, Summary, User


def register() -> None:
    """Log who changes what a user may do, and who revokes a key."""
    rights = {"groups", "user_permissions"}
    auditlog.register(User, include_fields=["tier", "is_active", "is_staff", "is_superuser"], m2m_fields=rights)
    auditlog.register(ApiKey, include_fields=["name", "revoked_at"])


def cancel_asked(run: Run) -> None:
    """Log that a run is told to stop; runs are not registered, since the product itself changes them all the time."""
    _log_asked(run, "cancel_requested_at")


def retry_asked(run: Run) -> None:
    """Log that another run is asked for in its place, for its owner: it may be refused."""
    _log_asked(run, "retry_requested_at")


def words_read(row: Chat | Message | Summary) -> None:
    """Log that somebody is about to read what people wrote; which words, the row says."""
    LogEntry.objects.log_create(row, force_log=True, action=LogEntry.Action.ACCESS)


def chat_deleted(chat: Chat) -> None:
    """Log that a chat is deleted by somebody else than its owner."""
    gone = {"owner": (str(chat.owner), str(None))}
    LogEntry.objects.log_create(chat, action=LogEntry.Action.DELETE, changes=gone)


def _log_asked(run: Run, what: str) -> None:
    asked = {what: (str(None), str(timezone.now()))}
    LogEntry.objects.log_create(run, action=LogEntry.Action.UPDATE, changes=asked)
