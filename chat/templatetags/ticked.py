"""Text with code between backticks, as HTML."""

from __future__ import annotations

from django import template
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

register = template.Library()


@register.filter
def ticked(text: str) -> SafeString:
    """What stands between backticks is code; all else is text."""
    pieces = enumerate(text.split("`"))
    return format_html_join("", "{}{}{}", (_tagged(piece, is_code=place % 2 == 1) for place, piece in pieces))


def _tagged(piece: str, *, is_code: bool) -> tuple[SafeString, str, SafeString]:
    begin, end = ("<code>", "</code>") if is_code else ("", "")
    return SafeString(begin), piece, SafeString(end)
