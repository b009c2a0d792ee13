"""What the environment gives: a value that cannot be meant is refused, with the variable's name."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import environ
from django.core.exceptions import ImproperlyConfigured

from inference.servers import BadAddress, checked

# Of PostgreSQL. Of others django-environ would say what it could not read, with the password in it.
SCHEMES = ("postgres", "postgresql", "psql", "pgsql")


class Given(environ.Env):  # type: ignore[misc]  # django-environ has no types
    """The environment. What it raises is `ImproperlyConfigured`, and has no password in it."""

    def whole(self, name: str, default: int, least: int = 1) -> int:
        """A whole number from `least` on."""
        return int(self._number(name, default, least, int))

    def seconds(self, name: str, default: float, least: float) -> float:
        """A number of seconds, `least` or more."""
        return float(self._number(name, default, least, float))

    def postgres(self, name: str) -> dict[str, Any]:
        """Where a database is, as Django has it."""
        found: dict[str, Any] = {}
        if self.str(name).partition("://")[0] in SCHEMES:
            with suppress(ValueError):
                found = self.db(name)
        if not found.get("NAME"):
            raise ImproperlyConfigured(f"{name} must be postgres://user:password@host:5432/name")
        return found

    def redis(self, name: str, may_be_cluster: bool) -> str:
        """Where a Redis is. Over TLS its certificate is checked unless the URL says otherwise."""
        try:
            return checked(self.str(name), may_be_cluster)
        except BadAddress as wrong:
            raise ImproperlyConfigured(f"{name}: {wrong}") from None

    def _number(self, name: str, default: float, least: float, kind: type[int] | type[float]) -> float:
        text = self.str(name, default=str(default))
        try:
            number = kind(text)
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and number >= least):
            what = "a whole number" if kind is int else "a number"
            raise ImproperlyConfigured(f"{name} must be {what}, {least} or more, not {text!r}")
        return number
