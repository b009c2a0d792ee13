"""Rows that operators set, and the ledger."""

from scheduler.models.ledger import COUNTS, LedgerEntry
from scheduler.models.overrides import Override
from scheduler.models.tiers import SLUG, Model, ModelQuerySet, Tier

__all__ = ["COUNTS", "SLUG", "LedgerEntry", "Model", "ModelQuerySet", "Override", "Tier"]
