"""An operator in the admin, by its pages: signs in, changes a field, saves."""

from __future__ import annotations

from collections.abc import Mapping
from html.parser import HTMLParser
from http.cookiejar import CookieJar
from typing import Any
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, build_opener

from tests.stack.stack import manage

NAME, PASSWORD = "operator", "a-password-of-the-bench"


class Operator:
    """A superuser of a running product."""

    def __init__(self, port: int, environ: Mapping[str, str]) -> None:
        password = {"DJANGO_SUPERUSER_PASSWORD": PASSWORD}
        manage({**environ, **password}, "createsuperuser", "--no-input", "--username", NAME, "--email", "o@example.org")
        self._site = f"http://127.0.0.1:{port}"
        self._opener = build_opener(HTTPCookieProcessor(CookieJar()))
        self._save("/admin/login/", username=NAME, password=PASSWORD, next="/admin/")

    def weigh(self, tier: str, weight: int) -> None:
        """Give a tier another weight."""
        self._save(f"/admin/scheduler/tier/{tier}/change/", weight=str(weight))

    def move(self, user_id: str, tier: str) -> None:
        """Give a user another tier."""
        self._save(f"/admin/chat/user/{user_id}/change/", tier=tier)

    def _save(self, path: str, **changes: str) -> None:
        form = _Form()
        form.feed(self._opener.open(self._site + path).read().decode())
        with self._opener.open(self._site + path, urlencode({**form.fields, **changes}).encode()) as answer:
            # A form with errors is shown again under its own address.
            assert not answer.url.endswith(path), answer.read().decode()[:2000]


class _Form(HTMLParser):
    """The values that a page's form would send as it stands."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self._select = self._textarea = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found: dict[str, Any] = dict(attrs)
        name = found.get("name")
        if tag == "select":
            self._select = name or ""
        elif tag == "option" and self._select and "selected" in found:
            self.fields[self._select] = found.get("value") or ""
        elif tag == "textarea":
            self._textarea = name or ""
        elif tag == "input" and name and _is_sent(found):
            self.fields[name] = found.get("value") or ("on" if found.get("type") == "checkbox" else "")

    def handle_endtag(self, tag: str) -> None:
        self._select = "" if tag == "select" else self._select
        self._textarea = "" if tag == "textarea" else self._textarea

    def handle_data(self, data: str) -> None:
        if self._textarea:
            self.fields[self._textarea] = data.lstrip("\n")


def _is_sent(field: Mapping[str, Any]) -> bool:
    if field.get("type") in {"submit", "button", "image"}:
        return False
    return field.get("type") not in {"checkbox", "radio"} or "checked" in field
