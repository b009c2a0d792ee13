"""Django's migrate, which comes back to a table that was in use."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import OperationalError, connection
from psycopg.errors import DeadlockDetected, LockNotAvailable

# Of whoever migrates: another does so behind it, and finds nothing left to do.
LOCK = 0x70616C_6D69
TRY_LOCK, UNLOCK = "SELECT pg_try_advisory_lock(%s)", "SELECT pg_advisory_unlock(%s)"
PAUSE_S = 2.0
PATIENCE_S = 600.0


class Command(migrate.Command):
    """A migration that did not get its locks in time left nothing behind: it is begun again, and those after it.

    Several that are begun at the same time take turns.
    """

    def handle(self, *args: Any, **options: Any) -> None:
        """As Django does. Raises `CommandError` when a table, or another migration, is in the way for long."""
        self._take_turn()
        try:
            self._migrate(*args, **options)
        finally:
            self._ask(UNLOCK)

    def _take_turn(self) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while not self._ask(TRY_LOCK):
            if time.monotonic() > give_up_at:
                raise CommandError("Another migration is under way all the time: see pg_stat_activity.")
            self.stderr.write("Another migration is under way: this one waits for it.")
            time.sleep(PAUSE_S)

    def _ask(self, lock: str) -> bool:
        with connection.cursor() as cursor:
            cursor.execute(lock, [LOCK])
            return bool(cursor.fetchone()[0])

    def _migrate(self, *args: Any, **options: Any) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            try:
                super().handle(*args, **options)
            except OperationalError as failure:
                if not isinstance(failure.__cause__, LockNotAvailable | DeadlockDetected):
                    raise
                if time.monotonic() > give_up_at:
                    raise CommandError(
                        "A table is in use all the time; what was applied until then stays."
                    ) from failure
            else:
                return
            self.stderr.write("A table is in use: the migration is begun again.")
            time.sleep(PAUSE_S)
