"""What an operator's browser sends from the admin's pages, and rows that they show."""

from __future__ import annotations

from django.utils import timezone

from chat.models import User
from scheduler.models import LedgerEntry, Model, Tier

# Management data of the two formsets on a user's page.
FORMSETS = {
    f"{formset}-{count}_FORMS": "0" for formset in ("override", "ledger") for count in ("TOTAL", "INITIAL", "MIN_NUM")
}
NUMBERS = (
    *("weight", "concurrency", "max_output_tokens", "budget_tokens", "refill_tokens_per_hour"),
    *("chat_turns", "queue_depth", "queue_deadline_s", "shed_at_percent"),
)
MODEL_FIELDS = (
    *("name", "max_output_tokens", "system_prompt", "temperature", "top_p"),
    *("queue_depth", "cached_token_percent"),
)


def tier_form(tier: Tier, **changes: object) -> dict[str, str]:
    """A tier's page as it is, but for some fields."""
    fields = {name: getattr(tier, name) for name in ("slug", "name", *NUMBERS)}
    return {name: str(value) for name, value in (fields | changes).items()}


def model_form(model: Model, **changes: str) -> dict[str, str]:
    """A model's page as it is, its tiers left out, but for some fields."""
    fields = {name: str(getattr(model, name)) for name in MODEL_FIELDS}
    switches = {name: "on" for name in ("is_active", "is_default") if getattr(model, name)}
    return fields | switches | changes


def user_form(**changes: str) -> dict[str, str]:
    """The page of an active user."""
    joined = {"date_joined_0": "2026-01-01", "date_joined_1": "0:0"}
    return {"username": "alice", "tier": "free", "is_active": "on", **joined, **FORMSETS, **changes}


def override_form(user: User, until: str, *, is_there: bool = False, **fields: str) -> dict[str, str]:
    """The page of an active user with an override of its own, until an ISO date."""
    own = {"user": str(user.pk), "until_0": until, "until_1": "0:0", **fields}
    forms = {"override-TOTAL_FORMS": "1", "override-INITIAL_FORMS": str(int(is_there))}
    return user_form(**forms, **{f"override-0-{name}": value for name, value in own.items()})


def add_entry(user: User, model: Model, **counts: int) -> LedgerEntry:
    """An entry of today."""
    numbers = {"runs": 1, "input_tokens": 3, "cached_tokens": 1, "output_tokens": 2, "charged_tokens": 5, **counts}
    return LedgerEntry.objects.create(user=user, day=timezone.now().date(), model=model, **numbers)
