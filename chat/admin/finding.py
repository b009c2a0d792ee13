"""Searches in lists of what users own: by id, or by whose it is. Never by what people wrote."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import ClassVar
from uuid import UUID

from django.db.models import Model as Row
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from chat.models import User
from scheduler.admin import ReadOnlyAdmin


class FoundAdmin(ReadOnlyAdmin):
    """`ids` are the columns in which a whole id is looked up, `owner` is the way to the user.

    A whole id is found by an index. A part of a name scans the users, and goes from those found to their rows.
    """

    ids: ClassVar[Sequence[str]]
    owner: ClassVar[str]
    search_fields = ("id",)  # for the box: what is searched is below

    def get_search_results(
        self, _request: HttpRequest, queryset: QuerySet[Row], search_term: str
    ) -> tuple[QuerySet[Row], bool]:
        """All rows for an empty term."""
        term = search_term.strip()
        if not term:
            return queryset, False
        try:
            key = UUID(term)
        except ValueError:
            return queryset.filter(**{f"{self.owner}__in": User.objects.filter(username__icontains=term)}), False
        return queryset.filter(reduce(or_, (Q(**{name: key}) for name in self.ids))), False
