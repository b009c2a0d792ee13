"""What keeps a tier or a model from being deleted, in numbers: Django's own page reads and lists every run of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import model_ngettext
from django.db.models import PROTECT
from django.db.models import Model as Row
from django.db.models.deletion import get_candidate_relations_to_delete
from django.http import HttpRequest

from scheduler import links

# As Django's `get_deleted_objects`: what goes, how many of each kind, what may not go, what keeps them.
Deleted = tuple[list[Any], dict[str, int], set[str], list[Any]]
MOST = 1000


class KeptAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # takes one in the stubs only
    """Rows with which nothing goes but their part in lists of others."""

    def get_deleted_objects(self, objs: Iterable[Row], request: HttpRequest) -> Deleted:
        """One query a kind that may refer to them, which counts `MOST` rows at most."""
        rows = list(objs)
        shown = [links.to_row(self.opts.label_lower.replace(".", "_"), row.pk, row) for row in rows]
        forbidden = set() if self.has_delete_permission(request) else {str(self.opts.verbose_name)}
        return shown, {str(self.opts.verbose_name_plural): len(rows)}, forbidden, list(self._kept_by(rows))

    def _kept_by(self, rows: list[Row]) -> Iterable[str]:
        relations: Iterable[Any] = get_candidate_relations_to_delete(self.opts)
        for relation in relations:
            if relation.on_delete is PROTECT:
                kind = relation.related_model
                count = kind._base_manager.filter(**{f"{relation.field.name}__in": rows})[:MOST].count()
                if count:
                    yield f"{count:,}{' or more' if count == MOST else ''} {model_ngettext(kind._meta, count)}"
