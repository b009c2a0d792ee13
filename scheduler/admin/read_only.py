"""Pages of rows that only the product writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast

from django.contrib import admin, messages
from django.core.paginator import Paginator
from django.db.models import Model as Row
from django.db.models import QuerySet
from django.db.models.constants import LOOKUP_SEP
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.functional import cached_property


class CutPaginator(Paginator):  # type: ignore[type-arg]  # takes one in the stubs only
    """Counts so many rows and no further: with a filter that no index serves each row of a long table would be read."""

    MOST = 10_000

    @cached_property
    def count(self) -> int:
        """`MOST` may stand for more."""
        rows = cast("QuerySet[Row]", self.object_list)
        return rows.order_by()[: self.MOST].count()

    @property
    def is_cut(self) -> bool:
        """Whether there may be more."""
        return self.count == self.MOST


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # takes one in the stubs only
    """Rows that only the product writes. Long tables: nothing counts all of their rows.

    `private` columns are read by no list and asked about by no address; `linked_by` are lookups of other pages' links
    beside those that lists filter by.
    """

    private: ClassVar[Sequence[str]] = ()
    linked_by: ClassVar[Sequence[str]] = ()
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    paginator = CutPaginator
    change_list_template = "admin/long_list.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Row]:
        """Without what is private."""
        return super().get_queryset(request).defer(*self.private)

    def lookup_allowed(self, lookup: str, value: Any, request: Any = None) -> bool:
        """Django allows any of the row's own columns: `?content__startswith=` would tell a text letter by letter."""
        if lookup.split(LOOKUP_SEP, maxsplit=1)[0] in self.private:
            return False
        return lookup in self.linked_by or super().lookup_allowed(lookup, value, request)

    def response_action(self, request: HttpRequest, queryset: QuerySet[Row], *args: Any) -> HttpResponse | None:
        """Refuses to act on all rows of a list of which nobody knows how many they are."""
        wants_all = request.POST.get("select_across") == "1"
        if wants_all and CutPaginator(queryset, 1).is_cut:
            text = f"Nothing is done: these may be more than {CutPaginator.MOST:,} rows. Narrow the list first."
            self.message_user(request, text, messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())
        return super().response_action(request, queryset, *args)

    def has_add_permission(self, _request: HttpRequest) -> bool:
        """Made elsewhere."""
        return False

    def has_change_permission(self, _request: HttpRequest, _row: Row | None = None) -> bool:
        """Changed elsewhere."""
        return False


class PartAdmin(ReadOnlyAdmin):
    """Rows that go with what they belong to, and not by themselves."""

    def has_delete_permission(self, request: HttpRequest, row: Row | None = None) -> bool:
        """Not on their own pages: the page that deletes the whole asks this too."""
        page = request.resolver_match.url_name if request.resolver_match else None
        is_own_page = str(page).startswith(f"{self.opts.app_label}_{self.opts.model_name}_")
        return not is_own_page and super().has_delete_permission(request, row)
