"""The backend; Django looks for it under this name."""

from __future__ import annotations

import select
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from django.db.backends.postgresql import base
from django.db.backends.postgresql.operations import DatabaseOperations
from psycopg import Connection, Cursor, OperationalError
from psycopg.errors import FeatureNotSupported
from psycopg_pool import ConnectionPool, PoolTimeout

from chatsite.database.absence import Absence
from chatsite.database.migrating import PatientSchemaEditor

if TYPE_CHECKING:
    from django.db.backends.utils import CursorWrapper


class _Operations(DatabaseOperations):
    def last_executed_query(self, cursor: Any, sql: str, params: Any) -> str:
        # What is sent to a statement that the server keeps is its name.
        return super().last_executed_query(cursor, sql, params) or sql


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's own. While the server is away, one thread in a while waits for a connection, and others fail at once."""

    SchemaEditorClass = PatientSchemaEditor
    ops_class = _Operations
    absences: ClassVar[dict[str, Absence]] = defaultdict(Absence)  # by alias; one for the process, as the pool is

    @property
    def pool(self) -> ConnectionPool[Any] | None:
        """Django's, which asks the server before each use of a connection, and pauses after each that has died.

        Ours asks where the server has said something unasked: a round trip less in each request. Where Postgres was
        restarted all connections have died: the first that is found has the others looked at.
        """
        pool: ConnectionPool[Any] | None = super().pool
        if pool is not None and pool._check is not None:
            pool._check = _checking_all_after(pool)
        return pool

    @property
    def absence(self) -> Absence:
        """What is known of this server."""
        return self.absences[self.alias]

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

    def planned_cursor(self) -> CursorWrapper:
        """One that has the server keep the plans of its statements, for this connection.

        They are made at a statement's first use, and again at the next after a rollback: psycopg forgets them then. No
        cursor of this kind sends two statements at once. Raises `OperationalError`.
        """
        self.ensure_connection()
        return cast("CursorWrapper", self._prepare_cursor(_PlannedCursor(self.connection)))  # type: ignore[attr-defined]

    def set_autocommit(self, autocommit: bool, force_begin_transaction_with_broken_autocommit: bool = False) -> None:
        """As Django does, but for a connection that was lost in its transaction: Django would wait for another here."""
        if self.connection is not None or not autocommit:
            super().set_autocommit(autocommit, force_begin_transaction_with_broken_autocommit)

    def _failures(self) -> int:
        """Attempts to connect, so far, that came to nothing."""
        return self.pool.get_stats().get("connections_errors", 0) if self.pool else 0


class _PlannedCursor(Cursor[Any]):
    def execute(
        self, query: Any, params: Any = None, *, prepare: bool | None = True, binary: bool | None = None
    ) -> Self:
        # For this statement alone: of all others psycopg would keep the texts, with the messages that are in them.
        self.connection.prepare_threshold = 0
        try:
            return super().execute(query, params, prepare=prepare, binary=binary)
        except FeatureNotSupported as stale:
            # A migration has changed a column's type. Other connections find out by themselves.
            self.connection.close()
            raise OperationalError("the plan was made before a migration") from stale
        finally:
            self.connection.prepare_threshold = None


def _checking_all_after(pool: ConnectionPool[Any]) -> Callable[[Connection[Any]], None]:
    def check(connection: Connection[Any]) -> None:
        if not _has_news(connection):
            return
        try:
            ConnectionPool.check_connection(connection)
        except OperationalError:
            pool.check()
            raise

    return check


def _has_news(connection: Connection[Any]) -> bool:
    """Whether an idle server has said something: that it ends, most likely. Told without a round trip."""
    waiting = select.poll()
    waiting.register(connection.fileno(), select.POLLIN)
    return bool(waiting.poll(0))
