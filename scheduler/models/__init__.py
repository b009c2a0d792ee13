"""Rows that operators set, and the ledger."""

from scheduler.models.ledger import COUNTS, LedgerEntry
from scheduler.models.overrides import Override
from scheduler.models.rules import RoutingRule
from scheduler.models.tiers import AUTO, SLUG, Model, ModelQuerySet, Tier
from scheduler.models.versions import ModelVersion, Rollout, Worker

__all__ = [
    "AUTO",
    "COUNTS",
    "SLUG",
    "LedgerEntry",
    "Model",
    "ModelQuerySet",
    "ModelVersion",
    "Override",
    "Rollout",
    "RoutingRule",
    "Tier",
    "Worker",
]
