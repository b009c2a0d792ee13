"""What the environment gives: a value that cannot be meant is refused, with the variable's name."""

from __future__ import annotations

import logging
import math
import sys
from contextlib import suppress
from types import TracebackType
from typing import Any

import environ
from django.core.exceptions import ImproperlyConfigured

from inference.servers import BadAddress, checked

# Of PostgreSQL. Of others django-environ would say what it could not read, with the password in it.
SCHEMES = ("postgres", "postgresql", "psql", "pgsql")
SWITCH = {"true": True, "on": True, "yes": True, "1": True, "false": False, "off": False, "no": False, "0": False}


class NotMeant(ImproperlyConfigured):
    """A variable is missing, or cannot be meant; the text names it, and has no password in it."""


def end_in_one_line() -> None:
    """Have the process say no more than that, where it ends for it."""
    as_before = sys.excepthook

    def say(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, NotMeant):
            sys.stderr.write(f"{error}\n")
        else:
            as_before(kind, error, trace)

    sys.excepthook = say


class Given(environ.Env):  # type: ignore[misc]  # django-environ has no types
    """The environment. What it raises is `NotMeant`."""

    def text(self, name: str) -> str:
        """Some text, without which nothing works."""
        text = self.str(name, default="")
        if not text:
            raise NotMeant(f"{name} is not set: see docs/settings.md")
        return str(text)

    def switch(self, name: str, default: bool) -> bool:
        """On or off."""
        word = self.str(name, default="").strip().lower()
        if not word:
            return default
        if word not in SWITCH:
            raise NotMeant(f"{name} must be true or false, not {word!r}")
        return SWITCH[word]

    def level(self, name: str, default: str) -> str:
        """From which level on is logged."""
        level = self.str(name, default="").strip().upper() or default
        known = logging.getLevelNamesMapping()
        if level not in known:
            raise NotMeant(f"{name} must be one of {', '.join(known)}, not {level!r}")
        return str(level)

    def whole(self, name: str, default: int, least: int = 1) -> int:
        """A whole number from `least` on."""
        return int(self._number(name, default, least, int))

    def seconds(self, name: str, default: float, least: float) -> float:
        """A number of seconds, `least` or more."""
        return float(self._number(name, default, least, float))

    def postgres(self, name: str) -> dict[str, Any]:
        """Where a database is, as Django has it."""
        found: dict[str, Any] = {}
        if self.text(name).partition("://")[0] in SCHEMES:
            with suppress(ValueError):
                found = self.db(name)
        if not found.get("NAME"):
            raise NotMeant(f"{name} must be postgres://user:password@host:5432/name")
        return found

    def redis(self, name: str, may_be_cluster: bool) -> str:
        """Where a Redis is. Over TLS its certificate is checked unless the URL says otherwise."""
        try:
            return checked(self.text(name), may_be_cluster)
        except BadAddress as wrong:
            raise NotMeant(f"{name}: {wrong}") from None

    def _number(self, name: str, default: float, least: float, kind: type[int] | type[float]) -> float:
        text = self.str(name, default=str(default))
        try:
            number = kind(text)
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and number >= least):
            what = "a whole number" if kind is int else "a number"
            raise NotMeant(f"{name} must be {what}, {least} or more, not {text!r}")
        return number
