"""Which changes of this app's rows are kept in the audit log."""

from __future__ import annotations

from auditlog.registry import auditlog

from scheduler.models import Model, Override, Tier


def register() -> None:
    """Log who changes tiers, models and overrides, when, and from what to what."""
    auditlog.register(Tier, include_fields=_columns(Tier))
    auditlog.register(Model, include_fields=_columns(Model), m2m_fields={"tiers"})
    auditlog.register(Override, include_fields=_columns(Override))


def _columns(row: type[Tier | Model | Override]) -> list[str]:
    # Without them the log takes the other ends of foreign keys for fields.
    return [field.name for field in row._meta.concrete_fields]
