"""What goes with a chat or a user, in numbers: Django's own page reads and lists every row, with all that is in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from django.contrib import admin
from django.contrib.admin.utils import model_ngettext
from django.db.models import Model as Row
from django.http import HttpRequest

from chat.models import ApiKey, Chat, Message, Run, Summary, User
from scheduler import links
from scheduler.deleting import Deleted
from scheduler.models import LedgerEntry, Override

# By kind: what goes with it, and the way from there.
PARTS: Mapping[type[Row], Mapping[type[Row], str]] = {
    Chat: {Message: "chat", Run: "chat", Summary: "chat"},
    User: {
        **{Chat: "owner", Message: "chat__owner", Run: "chat__owner", Summary: "chat__owner"},
        **{ApiKey: "user", LedgerEntry: "user", Override: "user"},
    },
}


class CountedDeletion(admin.ModelAdmin):  # type: ignore[type-arg]  # takes one in the stubs only
    """Says how many rows of each kind go, and which kinds the operator may not delete."""

    def get_deleted_objects(self, objs: Iterable[Row], request: HttpRequest) -> Deleted:
        """One query a kind, and nothing that protects rows: whatever users own goes with them."""
        rows = list(objs)
        counts = {kind: kind._default_manager.filter(**{f"{way}__in": rows}).count() for kind, way in self._parts()}
        going = {kind: count for kind, count in counts.items() if count}
        parts = [f"{count} {model_ngettext(kind._meta, count)}" for kind, count in going.items()]
        shown = [links.to_row(self.opts.label_lower.replace(".", "_"), row.pk, row) for row in rows]
        forbidden = {str(kind._meta.verbose_name) for kind in (self.model, *going) if not _may_delete(kind, request)}
        totals = {self.model: len(rows), **going}
        return (
            [*shown, *([parts] if parts else [])],
            {str(kind._meta.verbose_name_plural): count for kind, count in totals.items()},
            forbidden,
            [],
        )

    def _parts(self) -> Sequence[tuple[type[Row], str]]:
        return list(PARTS[self.model].items())


def _may_delete(kind: type[Row], request: HttpRequest) -> bool:
    registered = admin.site._registry.get(kind)
    return registered is None or registered.has_delete_permission(request)
