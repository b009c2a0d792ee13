"""How figures of the load are written: short, and with their unit."""

from __future__ import annotations

from django import template

register = template.Library()

MINUTE_S, HOUR_S = 60, 3600
UNKNOWN = "–"
# What a template has for nothing, and for a key that a worker of another release does not report.
Missing = str | None


@register.filter
def count(number: float | Missing) -> str:
    """A number in three digits or so: 7.5, 340, 12.3k."""
    if isinstance(number, Missing):
        return UNKNOWN
    if number >= 10_000:
        return f"{number / 1000:,.0f}k" if number >= 100_000 else f"{number / 1000:.1f}k"
    return f"{number:,.0f}" if number >= 10 else f"{number:.1f}".removesuffix(".0")


@register.filter
def a_minute(per_s: float) -> str:
    """A rate a second, as one a minute."""
    return count(per_s * 60)


@register.filter
def percent(share: float | Missing) -> str:
    """A share in whole percents."""
    return UNKNOWN if isinstance(share, Missing) else f"{share:.0%}"


@register.filter
def duration(seconds: float) -> str:
    """Its greatest unit, and the next one: 0 s, 59 s, 2 min 05 s, 3 h 10 min."""
    whole = int(seconds)
    if whole < MINUTE_S:
        return f"{whole} s"
    if whole < HOUR_S:
        return f"{whole // MINUTE_S} min {whole % MINUTE_S:02} s"
    return f"{whole // HOUR_S:,} h {whole % HOUR_S // MINUTE_S:02} min"
