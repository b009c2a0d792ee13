"""What a program wishes for one run beyond the model's own settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from chat.models import Run


@dataclass(frozen=True, slots=True)
class Wishes:
    """None leaves a setting to the model's row.

    `system` is in place of the model's system prompt. At the first of the `stop` strings the answer ends, without it.
    """

    system: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    stop: Sequence[str] = ()

    @classmethod
    def of(cls, run: Run) -> Self:
        """As they were stored with it."""
        return cls(**run.wishes)

    def stored(self) -> Mapping[str, Any]:
        """The JSON object of those that there are."""
        return {name: value for name, value in asdict(self).items() if value is not None and value != ()}
