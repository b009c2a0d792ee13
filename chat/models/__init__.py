"""Rows that users own."""

from chat.models.chats import Chat, ChatQuerySet, Message, MessageQuerySet, Role
from chat.models.checkpoints import Checkpoint
from chat.models.idempotency import IdempotencyKey, KeyLost
from chat.models.keys import USUAL_SCOPES, ApiKey, ApiKeyQuerySet, Scope, digest
from chat.models.marks import Mark
from chat.models.runs import (
    CANCELLED,
    LIVE,
    TERMINAL,
    TRANSITIONS,
    Claim,
    DeletedRun,
    Holder,
    Outcome,
    Run,
    RunQuerySet,
    RunTaken,
    Status,
)
from chat.models.summaries import Summary
from chat.models.users import DEFAULT_TIER, User

__all__ = [
    "CANCELLED",
    "DEFAULT_TIER",
    "LIVE",
    "TERMINAL",
    "TRANSITIONS",
    "USUAL_SCOPES",
    "ApiKey",
    "ApiKeyQuerySet",
    "Chat",
    "ChatQuerySet",
    "Checkpoint",
    "Claim",
    "DeletedRun",
    "Holder",
    "IdempotencyKey",
    "KeyLost",
    "Mark",
    "Message",
    "MessageQuerySet",
    "Outcome",
    "Role",
    "Run",
    "RunQuerySet",
    "RunTaken",
    "Scope",
    "Status",
    "Summary",
    "User",
    "digest",
]
