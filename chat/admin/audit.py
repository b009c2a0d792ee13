"""The audit log: who changed what, from what to what. Nobody changes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from auditlog.models import LogEntry
from django.contrib import admin
from django.db.models import Model as Row
from django.http import HttpRequest
from django.utils.html import format_html_join
from django.utils.safestring import mark_safe
from django.utils.text import Truncator

from scheduler import links
from scheduler.admin import ReadOnlyAdmin

# Of a value in a list: a system prompt may be long.
SHOWN_CHARS = 80

admin.site.unregister(LogEntry)


@admin.register(LogEntry)
class AuditAdmin(ReadOnlyAdmin):
    """In place of the library's own, which shows no values in its list, and keeps the last request in itself."""

    list_display = ("timestamp", "who", "action", "what", "change")
    list_filter = ("timestamp", "action", ("content_type", admin.RelatedOnlyFieldListFilter))
    list_select_related = ("actor", "content_type")
    search_fields = ("object_repr", "object_pk", "actor__username", "additional_data__username")
    fields = ("timestamp", "who", "action", "content_type", "what", "object_pk", "whole_change")
    readonly_fields = ("who", "what", "whole_change")
    ordering = ("-timestamp", "-id")

    def has_delete_permission(self, _request: HttpRequest, _row: Row | None = None) -> bool:
        """Kept for good."""
        return False

    @admin.display(ordering="actor__username")
    def who(self, entry: LogEntry) -> str:
        """The operator, also one who is gone; else a command, or a shell."""
        return str((entry.additional_data or {}).get("username", "system"))

    @admin.display(ordering="object_repr")
    def what(self, entry: LogEntry) -> str:
        """The row, as it was called then, with the way to it where it has a page and was not deleted."""
        name = f"{entry.content_type.name} {entry.object_repr}"
        kind = entry.content_type.model_class()
        if kind not in admin.site._registry or entry.action == LogEntry.Action.DELETE:
            return name
        return links.to_row(f"{entry.content_type.app_label}_{entry.content_type.model}", entry.object_pk, name)

    @admin.display
    def change(self, entry: LogEntry) -> str:
        """Old and new values, the beginnings of long ones."""
        return _lines(entry, SHOWN_CHARS)

    @admin.display(description="change")
    def whole_change(self, entry: LogEntry) -> str:
        """Likewise, all of them."""
        return _lines(entry, None)


def _lines(entry: LogEntry, chars: int | None) -> str:
    lines = (tuple(Truncator(part).chars(chars) if chars else part for part in line) for line in _changes(entry))
    return format_html_join(mark_safe("<br>"), "{}: {} → {}", lines)


def _changes(entry: LogEntry) -> Iterator[tuple[str, str, str]]:
    for name, change in sorted((entry.changes or {}).items()):
        yield (name, *_old_and_new(change))


def _old_and_new(change: Any) -> tuple[str, str]:
    match change:
        case {"operation": "add", "objects": rows}:
            return "", ", ".join(rows)
        case {"objects": rows}:
            return ", ".join(rows), ""
        case old, new:
            return str(old), str(new)
        case _:
            return "", str(change)
