"""Statements of migrations, which may take long."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from django.db.backends.postgresql.schema import DatabaseSchemaEditor

from chatsite.database.deadline import DeadlinedConnection


class PatientSchemaEditor(DatabaseSchemaEditor):
    """A migration takes as long as it takes."""

    def __enter__(self) -> Self:
        editor = super().__enter__()
        self._set_patience(None)
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
