"""Which changes of this app's rows are kept in the audit log."""

from __future__ import annotations

from auditlog.registry import auditlog
from django.db.models import Model as Row

from scheduler.models import Model, ModelVersion, Override, Rollout, RoutingRule, Tier


def register() -> None:
    """Log who changes tiers, models, rules of Auto and overrides, when, and from what to what."""
    auditlog.register(Tier, include_fields=_columns(Tier))
    auditlog.register(Model, include_fields=_columns(Model), m2m_fields={"tiers"})
    auditlog.register(Override, include_fields=_columns(Override))
    auditlog.register(RoutingRule, include_fields=_columns(RoutingRule))
    # What loading finds out is no operator's change.
    auditlog.register(ModelVersion, include_fields=[name for name in _columns(ModelVersion) if name != "manifest"])
    auditlog.register(Rollout, include_fields=_columns(Rollout))


def _columns(row: type[Row]) -> list[str]:
    # Without them the log takes the other ends of foreign keys for fields.
    return [field.name for field in row._meta.concrete_fields]
