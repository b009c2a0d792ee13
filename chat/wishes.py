"""What a program wishes for one run beyond the model's own settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from chat.models import Run


@dataclass(frozen=True, slots=True)
class Wishes:
    """None leaves a setting to the model's row.

    At the first of the `stop` strings the answer ends, without it. `instructions` are for one answer, while what goes
    on from that has its `system` text again; both together are in place of the model's system prompt.
    `previous_response_id` is what it goes on from, by the name that a program gave.
    """

    instructions: str | None = None
    system: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    stop: Sequence[str] = ()
    background: bool = False
    previous_response_id: str | None = None

    @classmethod
    def of(cls, run: Run) -> Self:
        """As they were stored with it, by a newer release maybe, of which the rest is left."""
        known = {entry.name: run.wishes[entry.name] for entry in fields(cls) if entry.name in run.wishes}
        return cls(**{**known, "stop": tuple(known.get("stop", ()))})

    @property
    def system_prompt(self) -> str | None:
        """What the prompt begins with, if not with the model's own."""
        return joined(self.instructions, self.system)

    def stored(self) -> Mapping[str, Any]:
        """The JSON object of those that there are."""
        return {name: value for name, value in asdict(self).items() if value not in (None, (), False)}


def joined(*texts: str | None) -> str | None:
    """Texts for the beginning of a prompt as one; None where there is none."""
    return "\n\n".join(filter(None, texts)) or None
