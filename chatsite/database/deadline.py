"""Connections on which no statement waits for ever."""

from __future__ import annotations

from typing import Any, TypeVar

from psycopg import Connection, OperationalError
from psycopg.abc import PQGen
from psycopg.errors import IdleInTransactionSessionTimeout
from psycopg.pq import TransactionStatus

T = TypeVar("T")

INTERVAL_S = 0.1  # psycopg's own: how often it looks for Ctrl-C


class DeadlinedConnection(Connection[Any]):
    """psycopg's, but a statement without an answer by its deadline fails, and the connection with it.

    libpq has no such limit, and a server that is stopped still acknowledges what it is sent, so that TCP's own limits
    (keepalives, tcp_user_timeout) never end the wait. What was under way may yet be carried out when it wakes up.
    """

    patience_s: float | None = 10.0

    def wait(self, gen: PQGen[T], interval: float = INTERVAL_S, timeout: float | None = None) -> T:
        """As psycopg does. Raises `OperationalError`."""
        try:
            return super().wait(gen, interval, self.patience_s if timeout is None else timeout)
        except IdleInTransactionSessionTimeout as ended:
            # To psycopg an internal error; to us a connection that is lost, as when the server goes.
            raise OperationalError("this process was paused in a transaction") from ended
        except OperationalError as failure:
            if timeout is not None or self.pgconn.transaction_status != TransactionStatus.ACTIVE:
                raise  # what the server said, or what psycopg does when it is told to hurry
            self.pgconn.finish()
            raise OperationalError(f"the server was silent for {self.patience_s} s") from failure


class HastyConnection(DeadlinedConnection):
    """One to a server that another can stand in for."""

    patience_s = 1.0
