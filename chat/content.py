"""What a person may send: the rules on a message's text, in the order of their cost."""

from __future__ import annotations

import unicodedata

from django.conf import settings

from chat import problems

# Control characters, surrogates, line and paragraph separators. Not format characters: Persian needs them.
UNFIT_IN_A_LINE = frozenset({"Cc", "Cs", "Zl", "Zp"})


def check(content: str) -> None:
    """Raises `ContentBlank`, and as `check_storable` does."""
    # Joiners and the like leave as empty a bubble as blanks do.
    if all(character.isspace() or unicodedata.category(character) == "Cf" for character in content):
        raise problems.ContentBlank
    check_storable(content)


def check_storable(content: str) -> None:
    """Raises `ContentHasNul`, `ContentNotUnicode` or `ContentTooLarge`."""
    # Postgres stores no NUL.
    if "\0" in content:
        raise problems.ContentHasNul
    size_bytes = _size_bytes(content)
    if size_bytes > settings.MAX_CONTENT_BYTES:
        raise problems.ContentTooLarge(size_bytes=size_bytes, max_bytes=settings.MAX_CONTENT_BYTES)


def is_one_line(text: str) -> bool:
    """Whether it can stand in a list as a name: without line ends and control characters."""
    return not any(unicodedata.category(character) in UNFIT_IN_A_LINE for character in text)


def in_a_line(text: str) -> str:
    """The text as a name, without what cannot stand in a list."""
    return "".join(character for character in text if is_one_line(character)).strip()


def _size_bytes(content: str) -> int:
    try:
        return len(content.encode())
    except UnicodeEncodeError as error:
        raise problems.ContentNotUnicode(at=error.start) from error
