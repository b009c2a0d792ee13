"""The admin site of this product: whatever is changed in it is audited under its operator's name."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from auditlog.context import set_extra_data
from django.contrib import admin
from django.contrib.admin.apps import AdminConfig
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import URLPattern, URLResolver, path

View = TypeVar("View", bound=Callable[..., HttpResponseBase])


class AuditedAdminConfig(AdminConfig):
    """Django's admin with our site as its default one."""

    default_site = "chatsite.admin_site.AuditedSite"


class AuditedSite(admin.AdminSite):
    """Names the operator to the audit log around every view of the admin, hence forms, inlines, actions and deletions.

    Not by the library's middleware: that is synchronous, and would take every request of the site through a thread,
    event streams too.
    """

    site_header = site_title = "Palaver"
    index_title = "Administration"

    index_template = "load/admin_index.html"

    def get_urls(self) -> list[URLPattern | URLResolver]:
        """The load page beside the pages of rows."""
        from chat.load.page import page  # models are not there yet when Django asks for the site

        return [path("load/", self.admin_view(page), name="load"), *super().get_urls()]

    def admin_view(self, view: View, cacheable: bool = False) -> View:
        """The view for those who may enter, in their name."""

        @wraps(view)
        def audited(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            # The name as well: it stays when the operator's row goes.
            named = {"username": request.user.get_username()}
            with set_extra_data({"actor": request.user, "additional_data": named}):
                return view(request, *args, **kwargs)

        return super().admin_view(cast(View, audited), cacheable)
