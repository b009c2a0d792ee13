"""A copy of the database that may be read in its place, where one is set: it lags, and may be away."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError

from chatsite.database.absence import Absence

logger = logging.getLogger(__name__)

ALIAS = "replica"
_is_read: ContextVar[bool] = ContextVar("replica_is_read", default=False)
_absence = Absence()


class Away(Exception):
    """It does not answer, or refuses to: ask the primary."""


class Router:
    """Sends to the replica what a block of `reading` asks, all else to the primary, whatever an object came from."""

    def db_for_read(self, _model: Any, **_hints: Any) -> str:
        """As Django asks for each query that names no database."""
        return ALIAS if _is_read.get() else DEFAULT_DB_ALIAS

    def db_for_write(self, _model: Any, **_hints: Any) -> str:
        """Always there."""
        return DEFAULT_DB_ALIAS

    def allow_relation(self, *_objects: Any, **_hints: Any) -> bool:
        """Rows of both are the same."""
        return True

    def allow_migrate(self, db: str, *_: Any, **_hints: Any) -> bool:
        """What is migrated there comes by replication."""
        return db == DEFAULT_DB_ALIAS


def is_set() -> bool:
    """Whether there is one."""
    return ALIAS in settings.DATABASES


@contextmanager
def reading() -> Iterator[None]:
    """Have the block's queries answered by the replica, but for prepared ones.

    Raises `Away`: at once where it was so a moment ago, but for one caller in a while.
    """
    if not _absence.may_look():
        raise Away
    before = _is_read.set(True)
    try:
        yield
    except (DatabaseError, InterfaceError) as failure:
        _absence.begin()
        logger.warning("replica.away error=%s", type(failure.__cause__ or failure).__name__)
        raise Away from failure
    finally:
        _is_read.reset(before)
    _absence.end()
