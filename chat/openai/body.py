"""A request's JSON object, read field by field; what is wrong is told by the field's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chat.openai.fields import Field
from chat.problems import FieldInvalid

# What a row holds.
MOST_TOKENS = 2**31 - 1
TEMPERATURES, TOP_PS = (0, 2), (0, 1)


class Body:
    """Null is as good as nothing. Each reader raises `FieldInvalid` for a value of another kind, or out of range."""

    def __init__(self, data: Any, fields: Sequence[Field]) -> None:
        """Raises `FieldInvalid` for what is no object, and for fields that ask for what we do not do."""
        if not isinstance(data, dict):
            raise FieldInvalid("body_not_object", "The body must be a JSON object.", field="")
        self._data: Mapping[str, Any] = data
        for field in fields:
            if field.refuses(data.get(field.name)):
                raise FieldInvalid(f"{field.name}_unsupported", field.refusal, field.name)

    def get(self, name: str) -> Any:
        """The value as it is; None where there is none."""
        return self._data.get(name)

    def text(self, name: str) -> str | None:
        """A string."""
        value: str | None = self._of(name, str, "This must be a string.")
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        """True or false."""
        value = self._of(name, bool, "This must be true or false.")
        return default if value is None else value

    def nested(self, name: str) -> Mapping[str, Any]:
        """An object."""
        return self._of(name, dict, "This must be an object.") or {}

    def number(self, name: str, low: float, high: float) -> float | None:
        """A number within the two."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise _invalid(name, f"This must be a number from {low:g} to {high:g}.")
        return float(value)

    def whole(self, name: str, low: int, high: int) -> int | None:
        """A whole number within the two."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise _invalid(name, f"This must be a whole number from {low} to {high}.")
        return value

    def strings(self, name: str, most: int, most_chars: int) -> Sequence[str]:
        """A string or a list of them, none of them empty."""
        value = self.get(name)
        found = [value] if isinstance(value, str) else [] if value is None else value
        fit = isinstance(found, list) and all(isinstance(text, str) and 0 < len(text) <= most_chars for text in found)
        if not fit:
            raise _invalid(name, f"This must be a string of 1 to {most_chars} characters, or a list of such strings.")
        if len(found) > most:
            raise _invalid(name, f"There can be {most} of them at most.")
        return tuple(found)

    def _of(self, name: str, kind: type, wanted: str) -> Any:
        value = self.get(name)
        if value is not None and not isinstance(value, kind):
            raise _invalid(name, wanted)
        return value


def _invalid(name: str, detail: str) -> FieldInvalid:
    return FieldInvalid(f"{name}_invalid", detail, name)
