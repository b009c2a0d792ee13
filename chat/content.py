"""What a person may send: the rules on a message's text, in the order of their cost."""

from __future__ import annotations

import unicodedata

from django.conf import settings

from chat import problems


def check(content: str) -> None:
    """Raises `ContentBlank`, `ContentHasNul`, `ContentNotUnicode` or `ContentTooLarge`."""
    # Joiners and the like leave as empty a bubble as blanks do.
    if all(character.isspace() or unicodedata.category(character) == "Cf" for character in content):
        raise problems.ContentBlank
    # Postgres stores no NUL.
    if "\0" in content:
        raise problems.ContentHasNul
    size_bytes = _size_bytes(content)
    if size_bytes > settings.MAX_CONTENT_BYTES:
        raise problems.ContentTooLarge(size_bytes=size_bytes, max_bytes=settings.MAX_CONTENT_BYTES)


def _size_bytes(content: str) -> int:
    try:
        return len(content.encode())
    except UnicodeEncodeError as error:
        raise problems.ContentNotUnicode(at=error.start) from error
