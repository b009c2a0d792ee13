"""What operators set, and what came of it."""

from scheduler.admin.ledger import LedgerAdmin, TodaysUse
from scheduler.admin.limits import ModelAdmin, OverrideInline, RoutingRuleAdmin, TierAdmin
from scheduler.admin.read_only import CutPaginator, PartAdmin, ReadOnlyAdmin
from scheduler.admin.versions import RolloutAdmin, VersionAdmin, WorkerAdmin

__all__ = [
    "CutPaginator",
    "LedgerAdmin",
    "ModelAdmin",
    "OverrideInline",
    "PartAdmin",
    "ReadOnlyAdmin",
    "RolloutAdmin",
    "RoutingRuleAdmin",
    "TierAdmin",
    "TodaysUse",
    "VersionAdmin",
    "WorkerAdmin",
]
