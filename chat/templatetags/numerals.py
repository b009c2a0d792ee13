"""Numbers in a page's own language."""

from __future__ import annotations

from django import template
from django.utils.translation import get_language

register = template.Library()

# As a browser's Intl writes them. Django has no digits but ours, no thousands in Persian, and ten thousands in Chinese.
DIGITS = {"fa": str.maketrans("0123456789,", "۰۱۲۳۴۵۶۷۸۹٬")}


@register.filter
def numeral(number: float) -> str:
    """A whole number, its thousands apart: 12,345."""
    return f"{number:,.0f}".translate(DIGITS.get(get_language() or "", {}))
