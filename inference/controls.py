"""Control tokens: which tokens only a template may write, and how contents that spell one are kept from it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class Turn:
    """One message as the chat template sees it: `role` is `system`, `user` or `assistant`.

    `token_ids` are an answer's as the model gave them, where they are known.
    """

    role: str
    content: str
    token_ids: Sequence[int] | None = None


class Controls:
    """The tokens that only the template may write: special ones, and markup such as `<think>`."""

    def __init__(self, added_tokens: Sequence[dict[str, Any]]) -> None:
        # Longest first: that is how the tokenizers library picks among tokens that begin alike.
        tokens = sorted(filter(_is_control, added_tokens), key=lambda token: len(token["content"]), reverse=True)
        self.all = Spellings(token["content"] for token in tokens)
        self.special = Spellings(token["content"] for token in tokens if token["special"])
        self._ids = [token["id"] for token in tokens]
        self._known_ids = frozenset(self._ids)
        # Looked at first: where a character begins no token, none of the alternatives is tried (four times as fast).
        begins = "".join(sorted({re.escape(token["content"][0]) for token in tokens}))
        white = r"\s" if any(token["lstrip"] for token in tokens) else ""
        alternatives = "|".join(map(_matching, tokens))
        self._pattern = re.compile(f"(?=[{begins}{white}])(?:{alternatives})" if tokens else "(?!)")

    def split(self, rendering: str) -> Iterable[str | int]:
        """The text between control tokens, and the ids of these, in order."""
        position = 0
        for match in self._pattern.finditer(rendering):
            assert match.lastindex is not None
            yield rendering[position : match.start()]
            yield self._ids[match.lastindex - 1]
            position = match.end()
        yield rendering[position:]

    def count_in(self, rendering: str) -> int:
        """How many control tokens `rendering` spells."""
        return sum(1 for _ in self._pattern.finditer(rendering))

    def count_ids(self, ids: Iterable[int]) -> int:
        """How many of `ids` are control tokens."""
        return sum(token_id in self._known_ids for token_id in ids)


class Spellings:
    """Where a text spells one of `tokens`, or a part of one at its ends."""

    def __init__(self, tokens: Iterable[str]) -> None:
        self._tokens = frozenset(tokens)
        self._heads = tuple({token[:cut] for token in self._tokens for cut in range(1, len(token))})
        self._tails = tuple({token[cut:] for token in self._tokens for cut in range(1, len(token))})

    def __contains__(self, token: str) -> bool:
        return token in self._tokens

    def starts(self, text: str) -> set[int]:
        """Where one of the tokens begins, overlapping ones too."""
        found = set()
        for token in self._tokens:
            position = text.find(token)
            while position >= 0:
                found.add(position)
                position = text.find(token, position + 1)
        return found

    def ragged_ends(self, text: str) -> set[int]:
        """The first and the last visible character, where the text begins or ends inside one of the tokens."""
        visible = text.strip()
        first = text.find(visible)
        begins_inside = {first} if visible.startswith(self._tails) else set()
        ends_inside = {first + len(visible) - 1} if visible.endswith(self._heads) else set()
        return begins_inside | ends_inside


class Disguise:
    """Makes contents spell no control token, reversibly: a random mark and its code replace one character of each.

    Also where a content begins or ends with a part of one, so that none comes about together with the template's text.
    An answer of known ids can be hidden as a whole behind a mark with its number.
    """

    def __init__(self, controls: Controls) -> None:
        self._controls = controls
        self._mark = f"m{secrets.token_hex(16)}"  # letters and digits: survives trimming and JSON

    def put_on(self, turn: Turn) -> Turn:
        """The turn as the template may see it.

        Markup in an assistant's turn is left as it is: the model wrote it, and templates look for it (`</think>`).
        """
        spellings = self._controls.special if turn.role == ASSISTANT else self._controls.all
        positions = spellings.starts(turn.content) | spellings.ragged_ends(turn.content)
        if not positions:
            return turn
        characters = (self._coded(c) if n in positions else c for n, c in enumerate(turn.content))
        return Turn(turn.role, "".join(characters))

    def _coded(self, character: str) -> str:
        return f"{self._mark}{ord(character):06x}"

    def take_off(self, text: str) -> str:
        """`text` with the real characters back in place."""
        if self._mark not in text:
            return text  # the rule; a pattern is compiled for the exceptions
        return re.sub(f"{self._mark}([0-9a-f]{{6}})", lambda match: chr(int(match[1], 16)), text)

    def hide(self, number: int) -> str:
        """What stands for a content as a whole."""
        return f"{self._mark}n{number}n"

    def find_hidden(self, text: str) -> list[str]:
        """The text divided at hidden contents: text and numbers in turn, a text first and last."""
        return re.split(f"{self._mark}n([0-9]+)n", text) if self._mark in text else [text]


def _is_control(token: dict[str, Any]) -> bool:
    """Special, or wrapped like markup; other added tokens (runs of spaces, say) are ordinary text."""
    content: str = token["content"]
    return bool(token["special"]) or (content[:1] + content[-1:]) in {"<>", "[]"}


def _matching(token: dict[str, Any]) -> str:
    """A pattern for the token with the white space that it swallows."""
    before, after = (r"\s*" if token[side] else "" for side in ("lstrip", "rstrip"))
    return f"{before}({re.escape(token['content'])}){after}"
