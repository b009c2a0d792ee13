"""Which state of a user's lists a database has."""

from __future__ import annotations

from django.db import models

from chat.models.users import User


class Mark(models.Model):
    """A value that is new with each transaction by which a user's lists change.

    Triggers put it there, in that transaction: a copy of the database that has the same mark has all that led to it.
    """

    # Nothing refers to the user for the database to check: the mark must be the last row that a transaction locks.
    user = models.OneToOneField(
        User, on_delete=models.DO_NOTHING, db_constraint=False, primary_key=True, related_name="mark"
    )
    value = models.UUIDField(editable=False)

    def __str__(self) -> str:
        return str(self.value)
