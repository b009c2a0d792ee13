"""Text to token ids and back, by the model's own tokenizer and chat template; needs neither torch nor transformers."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import tokenizers
from jinja2 import TemplateError

from inference.chat_template import ChatTemplate
from inference.decoding import ByteLevelDecoding, ByteVocabulary, Decoding, StreamDecoding

ASSISTANT = "assistant"


class TokensError(Exception):
    """Root of what can go wrong with text and tokens.

    TokensError
    ├── TokenizerUnusable   the model folder lacks a file, or one is broken
    ├── UnencodableText     the text holds a lone surrogate, which is no character
    └── TemplateRefused     the model's chat template does not take these messages
    """

    code = "tokens_error"


class TokenizerUnusable(TokensError):
    """The model folder lacks a file, or one is broken."""

    code = "tokenizer_unusable"


class UnencodableText(TokensError):
    """The text holds a lone surrogate, which is no character."""

    code = "unencodable_text"


class TemplateRefused(TokensError):
    """The model's chat template does not take these messages."""

    code = "template_refused"


@dataclass(frozen=True, slots=True)
class Turn:
    """One message as the chat template sees it: `role` is `system`, `user` or `assistant`."""

    role: str
    content: str


class Tokenizer:
    """A model's tokenizer and chat template. Safe to share between threads."""

    _loaded: dict[Path, Tokenizer] = {}  # noqa: RUF012 - one per folder and process, behind the lock
    _lock = Lock()

    @classmethod
    def load(cls, folder: str | Path) -> Tokenizer:
        """The tokenizer of a model folder, read once per process. Raises `TokenizerUnusable`."""
        path = Path(folder).resolve()
        with cls._lock:
            if path not in cls._loaded:
                cls._loaded[path] = cls._read(path)
            return cls._loaded[path]

    @classmethod
    def _read(cls, folder: Path) -> Tokenizer:
        try:
            source = (folder / "tokenizer.json").read_text("utf-8")
            return cls(source, ChatTemplate.load(folder), _eos_ids(folder))
        # The tokenizers library raises bare exceptions.
        except Exception as error:
            raise TokenizerUnusable(f"the tokenizer in {folder} cannot be used: {error!r}") from error

    def __init__(self, source: str, template: ChatTemplate, eos_ids: frozenset[int]) -> None:
        """`source` is the text of tokenizer.json."""
        description = json.loads(source)
        self._template = template
        self._controls = _Controls(description["added_tokens"])
        self._plain = tokenizers.Tokenizer.from_str(source)
        self._guarded = _guarded(description, self._controls)
        byte_level = (description["decoder"] or {}).get("type") == "ByteLevel"
        self._bytes = ByteVocabulary(self._plain) if byte_level else None
        self.eos_ids = eos_ids

    @property
    def vocab_size(self) -> int:
        """Number of tokens, added ones included."""
        return self._plain.get_vocab_size(with_added_tokens=True)

    def encode_chat(self, turns: Sequence[Turn], add_generation_prompt: bool = True) -> list[int]:
        """Token ids of a chat, by the model's template. Raises `UnencodableText`, `TemplateRefused`.

        No content can become a control token: one that spells such a token is disguised while the template runs, which
        otherwise sees the contents as they are and may trim, cut or test them. Where nothing had to be disguised the
        ids are those of the plain rendering, hence transformers' own. Else the rendering is cut at the template's
        tokens and each piece is encoded as ordinary text, which comes to the same for byte-level tokenizers.
        """
        disguise = _Disguise(self._controls)
        shown = [_encodable(disguise.put_on(turn)) for turn in turns]
        rendering = self._render(shown, add_generation_prompt)
        if shown == list(turns):
            ids = self._plain.encode(rendering, add_special_tokens=False).ids
            # A normaliser may turn look-alikes into a token that no content spells.
            if self._controls.count_ids(ids) == self._controls.count_in(rendering):
                return ids
        return self._encode_pieces(rendering, disguise)

    def _render(self, turns: Sequence[Turn], add_generation_prompt: bool) -> str:
        messages = [{"role": turn.role, "content": turn.content} for turn in turns]
        try:
            return self._template.render(messages, add_generation_prompt=add_generation_prompt)
        except TemplateError as error:
            raise TemplateRefused(str(error)) from error

    def _encode_pieces(self, rendering: str, disguise: _Disguise) -> list[int]:
        ids: list[int] = []
        for piece in self._controls.split(rendering):
            ids += [piece] if isinstance(piece, int) else self.encode_text(disguise.take_off(piece))
        return ids

    def encode_text(self, text: str) -> list[int]:
        """Token ids of ordinary text: what spells a control token stays text. Raises `UnencodableText`."""
        return self._guarded.encode(_encodable_text(text), add_special_tokens=False).ids

    def encode_bytes(self, text: str) -> list[int]:
        """One token per UTF-8 byte, so that characters fall apart; a character without such tokens stays whole."""
        ids: list[int] = []
        for character in text:
            singles = [self._byte_ids.get(byte) for byte in character.encode()]
            whole = [token_id for token_id in singles if token_id is not None]
            ids += whole if len(whole) == len(singles) else self.encode_text(character)
        return ids

    @cached_property
    def _byte_ids(self) -> dict[int, int]:
        if self._bytes is None:
            found = {byte: self._plain.token_to_id(f"<0x{byte:02X}>") for byte in range(256)}
            return {byte: token_id for byte, token_id in found.items() if token_id is not None}
        spelt = {token_id: self._bytes.bytes_of(token_id) for token_id in range(self.vocab_size)}
        return {text[0]: token_id for token_id, text in spelt.items() if len(text) == 1}

    def count(self, text: str) -> int:
        """Number of tokens of ordinary text. Raises `UnencodableText`."""
        return len(self.encode_text(text))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of all `ids` at once, special tokens left out, U+FFFD for bytes that are no character."""
        return self._plain.decode(list(ids), skip_special_tokens=True)

    @cached_property
    def generation_prompt_ids(self) -> list[int]:
        """The ids with which the template opens an answer; empty if it has no such opening."""
        turns = [Turn("user", "?")]
        closed, opened = (self.encode_chat(turns, add_generation_prompt=opening) for opening in (False, True))
        return opened[len(closed) :] if opened[: len(closed)] == closed else []

    def decoder(self) -> Decoder:
        """A decoder for one run."""
        return Decoder(self)

    def _decoding(self) -> Decoding:
        return StreamDecoding(self._plain) if self._bytes is None else ByteLevelDecoding(self._bytes)


class Decoder:
    """Text of one run's ids, across all its attempts: feed it every id since the first one, in any pieces.

    The texts of all pushes and of the flush, put together, are the one-shot decode of all ids. For byte-level
    tokenizers that holds for any ids; for others see `StreamDecoding`. Special tokens are left out.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._decoding = tokenizer._decoding()

    def push(self, ids: Iterable[int]) -> str:
        """The text that became whole with `ids`, never half a character."""
        return self._decoding.push(ids)

    def flush(self) -> str:
        """At the end: what is left, with U+FFFD for bytes that never became a character."""
        return self._decoding.flush()


class _Controls:
    """The tokens that only the template may write: special ones, and markup such as `<think>`."""

    def __init__(self, added_tokens: Sequence[dict[str, Any]]) -> None:
        # Longest first: that is how the tokenizers library picks among tokens that begin alike.
        tokens = sorted(filter(_is_control, added_tokens), key=lambda token: len(token["content"]), reverse=True)
        self.all = _Spellings(token["content"] for token in tokens)
        self.special = _Spellings(token["content"] for token in tokens if token["special"])
        self._ids = [token["id"] for token in tokens]
        self._pattern = re.compile("|".join(map(_matching, tokens)) or "(?!)")

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
        controls = frozenset(self._ids)
        return sum(token_id in controls for token_id in ids)


class _Spellings:
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


class _Disguise:
    """Makes contents spell no control token, reversibly: a random mark and its code replace one character of each.

    Also where a content begins or ends with a part of one, so that none comes about together with the template's text.
    """

    def __init__(self, controls: _Controls) -> None:
        self._controls = controls
        self._mark = f"m{secrets.token_hex(16)}"  # letters and digits: survives trimming and JSON
        self._code = re.compile(f"{self._mark}([0-9a-f]{{6}})")

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
        return self._code.sub(lambda match: chr(int(match[1], 16)), text)


def _is_control(token: dict[str, Any]) -> bool:
    """Special, or wrapped like markup; other added tokens (runs of spaces, say) are ordinary text."""
    content: str = token["content"]
    return bool(token["special"]) or (content[:1] + content[-1:]) in {"<>", "[]"}


def _matching(token: dict[str, Any]) -> str:
    """A pattern for the token with the white space that it swallows."""
    before, after = (r"\s*" if token[side] else "" for side in ("lstrip", "rstrip"))
    return f"{before}({re.escape(token['content'])}){after}"


def _guarded(description: dict[str, Any], controls: _Controls) -> tokenizers.Tokenizer:
    """The same tokenizer, which takes no control token out of a text."""
    added = [token | {"special": token["content"] in controls.all} for token in description["added_tokens"]]
    guarded = tokenizers.Tokenizer.from_str(json.dumps(description | {"added_tokens": added}))
    guarded.encode_special_tokens = True
    return guarded


def _encodable(turn: Turn) -> Turn:
    return Turn(turn.role, _encodable_text(turn.content))


def _encodable_text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UnencodableText(f"character {error.start} is a lone surrogate") from error
    return text


def _eos_ids(folder: Path) -> frozenset[int]:
    """The ids that end a sequence, by the model's configuration: one or several, in either file or in both."""
    found: set[int] = set()
    for file in filter(Path.exists, (folder / "generation_config.json", folder / "config.json")):
        named = json.loads(file.read_text("utf-8")).get("eos_token_id")
        found.update(named if isinstance(named, list) else [] if named is None else [named])
    return frozenset(found)
