"""Statements of migrations, which may take long."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from django.db.backends.postgresql.schema import DatabaseSchemaEditor

from chatsite.database.deadline import DeadlinedConnection

# While a statement waits for a lock on a table, whoever comes later waits behind it. Longer than `deadlock_timeout`,
# after which the server sends an autovacuum away that holds the table.
WAIT_FOR_LOCKS = "SET LOCAL lock_timeout = '2s'"


class PatientSchemaEditor(DatabaseSchemaEditor):
    """A migration takes as long as it takes; one in a transaction waits for each lock for a moment only.

    One that is in none makes or drops an index beside those who use the table: nobody waits behind it.
    """

    def __enter__(self) -> Self:
        editor = super().__enter__()
        self._set_patience(None)
        if self.atomic_migration and not self.collect_sql:
            self.execute(WAIT_FOR_LOCKS)
        return editor

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self._set_patience(DeadlinedConnection.patience_s)

    def _set_patience(self, patience_s: float | None) -> None:
        if self.connection.connection is not None:
            self.connection.connection.patience_s = patience_s
