"""What people wrote: not even read from the database but for who may, asks for it on the row's page, and is logged."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import Model as Row
from django.http import HttpRequest
from django.utils.html import format_html

from chat import audit
from scheduler.admin import ReadOnlyAdmin

PERMISSION = "chat.read_content"
ASKED = "read"


class WordsAdmin(ReadOnlyAdmin):
    """Rows of which the column `words`, a private one, was written by people."""

    words: ClassVar[str]

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """The row, with its words if they are asked for: what cannot be logged is not read."""
        row: Any = super().get_object(request, object_id, from_field)
        if row is None or not self._are_read(request):
            return row
        audit.words_read(row)
        try:
            row.refresh_from_db(fields=[self.words])
        except self.model.DoesNotExist:
            return None
        return row

    def get_fields(self, request: HttpRequest, row: Row | None = None) -> Any:
        """Its words come last, or the way to them for who may read them."""
        fields = tuple(super().get_fields(request, row))
        if self._are_read(request):
            return (*fields, self.words)
        return (*fields, "unread") if self._may_read(request) else fields

    def get_readonly_fields(self, request: HttpRequest, row: Row | None = None) -> Any:
        """All of them."""
        return (*super().get_readonly_fields(request, row), "unread")

    @admin.display(description="words")
    def unread(self, _row: Row) -> str:
        """To the same page with them."""
        return format_html('<a href="?{}">Read {}</a> (this is logged)', ASKED, self.words)

    def _may_read(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request) and request.user.has_perm(PERMISSION)

    def _are_read(self, request: HttpRequest) -> bool:
        # Not of the pages of its history and its deletion, nor where only headers are wanted.
        page = request.resolver_match.url_name if request.resolver_match else None
        is_own_page = page == f"{self.opts.app_label}_{self.opts.model_name}_change"
        return is_own_page and request.method == "GET" and ASKED in request.GET and self._may_read(request)
