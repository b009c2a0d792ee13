"""The backend; Django looks for it under this name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.backends.postgresql import base
from psycopg import Connection, OperationalError
from psycopg_pool import ConnectionPool, PoolTimeout

from chatsite.database.absence import Absence
from chatsite.database.migrating import PatientSchemaEditor


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's own. While the server is away, one thread in a while waits for a connection, and others fail at once."""

    SchemaEditorClass = PatientSchemaEditor
    absence = Absence()  # one for the process, as the pool is

    @property
    def pool(self) -> ConnectionPool[Any] | None:
        """Django's, which finds out about connections that have died one at a time, and pauses after each.

        Where Postgres was restarted they all have: the first that is found has the others looked at.
        """
        pool: ConnectionPool[Any] | None = super().pool
        if pool is not None and pool._check is not None:
            pool._check = _checking_all_after(pool)
        return pool

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """A connection from the pool. Raises `OperationalError`."""
        if not self.absence.may_look():
            raise OperationalError("the server was away a moment ago")
        failures = self._failures()
        try:
            connection = super().get_new_connection(conn_params)
        except PoolTimeout:
            # Without failures all connections are busy, and the next caller may have better luck.
            if self._failures() > failures:
                self.absence.begin()
            raise
        self.absence.end()
        return connection

    def set_autocommit(self, autocommit: bool, force_begin_transaction_with_broken_autocommit: bool = False) -> None:
        """As Django does, but for a connection that was lost in its transaction: Django would wait for another here."""
        if self.connection is not None or not autocommit:
            super().set_autocommit(autocommit, force_begin_transaction_with_broken_autocommit)

    def _failures(self) -> int:
        """Attempts to connect, so far, that came to nothing."""
        return self.pool.get_stats().get("connections_errors", 0) if self.pool else 0


def _checking_all_after(pool: ConnectionPool[Any]) -> Callable[[Connection[Any]], None]:
    def check(connection: Connection[Any]) -> None:
        try:
            ConnectionPool.check_connection(connection)
        except OperationalError:
            pool.check()
            raise

    return check
