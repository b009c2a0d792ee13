"""Links from one page of the admin to another; `rows` is an app and a model, such as `chat_run`."""

from __future__ import annotations

from urllib.parse import urlencode

from django.contrib.admin.utils import quote
from django.urls import reverse
from django.utils.html import format_html, format_html_join

NOTHING = "-"  # as the admin writes it


def to_row(rows: str, key: object, text: object = None) -> str:
    """To the page of one row, named by its key unless told otherwise."""
    if key is None:
        return NOTHING
    address = reverse(f"admin:{rows}_change", args=[quote(str(key))])
    return format_html('<a href="{}">{}</a>', address, key if text is None else text)


def to_list(rows: str, text: object, **lookups: object) -> str:
    """To those rows of a list that the lookups find."""
    return format_html('<a href="{}?{}">{}</a>', reverse(f"admin:{rows}_changelist"), urlencode(lookups), text)


def together(*links: str) -> str:
    """Several in one line."""
    return format_html_join(", ", "{}", ((link,) for link in links))
