"""What runs cost their users: reserved at first, written into the ledger with their end, settled after it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from uuid import UUID

from django.conf import settings
from django.db import InterfaceError, OperationalError

from chat.models import DeletedRun, Run, Status, User
from chatsite.database.prepared import planned
from scheduler.budgets import Reservation, TokenBuckets
from scheduler.dispensable import shared
from scheduler.limits import Limits

# Whoever ends a run settles it right after.
GRACE = timedelta(seconds=5)
DELETED_KEPT = timedelta(days=1)
PAGE = 500

# By the run's own end, so that whoever adds runs up comes to the same day.
ENTER = """
    INSERT INTO scheduler_ledgerentry AS kept
                (user_id, day, model_id, runs, input_tokens, cached_tokens, output_tokens, charged_tokens)
    SELECT owner_id, (finished_at AT TIME ZONE 'UTC')::date, model_id, count(*),
           sum(input_tokens), sum(cached_tokens), sum(output_tokens), sum(charged_tokens)
      FROM chat_run JOIN chat_chat ON chat_chat.id = chat_run.chat_id
     WHERE chat_run.id = ANY(%(run_ids)s) AND started_at IS NOT NULL AND finished_at IS NOT NULL
     GROUP BY 1, 2, 3
        ON CONFLICT (user_id, day, model_id) DO UPDATE
       SET runs = kept.runs + excluded.runs,
           input_tokens = kept.input_tokens + excluded.input_tokens,
           cached_tokens = kept.cached_tokens + excluded.cached_tokens,
           output_tokens = kept.output_tokens + excluded.output_tokens,
           charged_tokens = kept.charged_tokens + excluded.charged_tokens
"""

Take = Callable[[int], None]


def buckets() -> TokenBuckets:
    """This process's budgets, in the Redis of the settings."""
    return _buckets(settings.STREAMS_URL)


@lru_cache
def _buckets(url: str) -> TokenBuckets:
    return TokenBuckets(shared(url))


@contextmanager
def holding(user: User, run_id: UUID, limits: Limits) -> Iterator[Take]:
    """Around the transaction that stores a run: what `take` reserved in there is given back where it fails.

    `take` raises `BudgetExhausted`. Where we die meanwhile the reaper gives it back.
    """
    reservation, is_held = Reservation(user.pk, run_id), False

    def take(tokens: int) -> None:
        nonlocal is_held
        buckets().reserve(reservation, tokens, limits)
        is_held = True

    try:
        yield take
    except (OperationalError, InterfaceError):
        raise  # the transaction may have been committed all the same: the reaper looks, as where the process ends
    except Exception:
        if is_held:
            buckets().settle(reservation, 0)
        raise


def enter(run_ids: Collection[UUID]) -> None:
    """Add runs that have just ended to their owners' ledger, in the transaction that ended them.

    Those that no worker took are left out.
    """
    if not run_ids:
        return
    with planned() as cursor:
        cursor.execute(ENTER, {"run_ids": list(run_ids)})


def settle(run: Run) -> None:
    """Charge an ended run, and give back the rest of what was reserved for it. Safe to repeat."""
    buckets().settle(Reservation(run.chat.owner_id, run.pk), run.charged_tokens)


def keep_charges(run_ids: Collection[UUID]) -> None:
    """Before runs are deleted, keep what they are charged: their reservations are settled behind the commit."""
    if run_ids:
        DeletedRun.objects.bulk_create(
            DeletedRun(run_id, charged_tokens=charge) for run_id, _, charge in _charges(run_ids)
        )


def settle_deleted(user_id: UUID, run_ids: Collection[UUID]) -> None:
    """Likewise for runs that were deleted."""
    for run_id, charge in _kept_charges(run_ids).items():
        buckets().settle(Reservation(user_id, run_id), charge)


def settle_left_over() -> int:
    """Settle what others died before they settled it, and give back what was reserved for no run; says how many."""
    left = {reservation.run_id: reservation for reservation in buckets().reserved_before(GRACE)}
    return sum(_settle_page(page) for page in _pages(left))


def _pages(left: dict[UUID, Reservation]) -> Iterator[dict[UUID, Reservation]]:
    found = list(left.items())
    for start in range(0, len(found), PAGE):
        yield dict(found[start : start + PAGE])


def _settle_page(left: dict[UUID, Reservation]) -> int:
    # Rows first: what is deleted after they were read still looks live, and has its turn in the next round.
    rows = {run_id: (status, charge) for run_id, status, charge in _charges(left)}
    charges = {run_id: charge for run_id, (status, charge) in rows.items() if Status(status).is_terminal}
    if missing := left.keys() - rows.keys():
        charges |= _kept_charges(missing)
        charges |= dict.fromkeys(_unborn(missing - charges.keys()), 0)
    return sum(buckets().settle(left[run_id], charge) for run_id, charge in charges.items())


def _charges(run_ids: Iterable[UUID]) -> Iterable[tuple[UUID, str, int]]:
    return Run.objects.filter(pk__in=list(run_ids)).order_by().values_list("pk", "status", "charged_tokens")


def _kept_charges(run_ids: Collection[UUID]) -> dict[UUID, int]:
    if not run_ids:
        return {}
    return dict(DeletedRun.objects.filter(pk__in=run_ids).values_list("pk", "charged_tokens"))


def _unborn(run_ids: Collection[UUID]) -> set[UUID]:
    """Those of the runs that will never have a row."""
    if not run_ids:
        return set()
    long_ago = timedelta(seconds=settings.UNBORN_S)
    return {reservation.run_id for reservation in buckets().reserved_before(long_ago)} & set(run_ids)
