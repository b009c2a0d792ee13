"""Text to token ids and back, by the model's own tokenizer and chat template; needs neither torch nor transformers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import tokenizers
from jinja2 import TemplateError

from inference.chat_template import ChatTemplate
from inference.controls import Controls, Disguise, Turn
from inference.decoding import ByteLevelDecoding, ByteVocabulary, Decoding, StreamDecoding
from inference.rendering import Answer, Piece, Rendering

__all__ = ["Decoder", "TemplateRefused", "Tokenizer", "TokenizerUnusable", "TokensError", "Turn", "UnencodableText"]


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


class Tokenizer:
    """A model's tokenizer and chat template. Safe to share between threads."""

    _loaded: dict[str, Tokenizer] = {}  # noqa: RUF012 - one per folder and process, behind the lock
    _lock = Lock()

    @classmethod
    def load(cls, folder: str | Path) -> Tokenizer:
        """The tokenizer of a model folder, read once per process. Raises `TokenizerUnusable`."""
        name = str(folder)
        if known := cls._loaded.get(name):
            return known
        with cls._lock:
            if name not in cls._loaded:
                cls._loaded[name] = cls._read(Path(folder))
            return cls._loaded[name]

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
        self._controls = Controls(description["added_tokens"])
        self._plain = tokenizers.Tokenizer.from_str(source)
        self._guarded = _guarded(description, self._controls)
        byte_level = (description["decoder"] or {}).get("type") == "ByteLevel"
        self._bytes = ByteVocabulary(self._plain) if byte_level else None
        self.eos_ids = eos_ids
        # Texts come to other ids with another one.
        self.fingerprint = hashlib.sha256(source.encode()).digest()

    @property
    def vocab_size(self) -> int:
        """Number of tokens, added ones included."""
        return self._plain.get_vocab_size(with_added_tokens=True)

    def encode_chat(self, turns: Sequence[Turn], add_generation_prompt: bool = True) -> list[int]:
        """Token ids of a chat, by the model's template. Raises `UnencodableText`, `TemplateRefused`.

        No content can become a control token: one that spells such a token is disguised while the template runs, which
        otherwise sees the contents as they are and may trim, cut or test them. Where nothing had to be disguised the
        ids are those of the plain rendering, hence transformers' own.
        """
        if self.is_byte_level:
            return self.encode(self.render(turns, add_generation_prompt))
        disguise = Disguise(self._controls)
        shown = [_encodable(disguise.put_on(turn)) for turn in turns]
        rendered = self._rendered(shown, add_generation_prompt)
        if shown == list(turns):
            ids = self._plain.encode(rendered, add_special_tokens=False).ids
            # A normaliser may turn look-alikes into a token that no content spells.
            if self._controls.count_ids(ids) == self._controls.count_in(rendered):
                return ids
        return self.encode(Rendering(self._pieces(rendered, disguise, {})))

    @property
    def is_byte_level(self) -> bool:
        """Whether pieces that were encoded each by itself come to what the whole text does."""
        return self._bytes is not None

    def render(self, turns: Sequence[Turn], add_generation_prompt: bool = True) -> Rendering:
        """The chat in pieces, answers with known ids as such. Raises `UnencodableText`, `TemplateRefused`.

        A template that changes one of these answers, or leaves it out, gets none of them: all are text then.
        """
        disguise = Disguise(self._controls)
        shown = [_encodable(disguise.put_on(turn)) for turn in turns]
        rendered = self._rendered(shown, add_generation_prompt)
        known = {n: Answer(turn.content, turn.token_ids) for n, turn in enumerate(turns) if turn.token_ids}
        if known:
            hidden = [Turn(turn.role, disguise.hide(n)) if n in known else turn for n, turn in enumerate(shown)]
            hiding = self._rendered(hidden, add_generation_prompt)
            revealed = disguise.find_hidden(hiding)
            revealed[1::2] = [shown[int(number)].content for number in revealed[1::2]]
            if "".join(revealed) == rendered:
                return Rendering(self._pieces(hiding, disguise, known))
        return Rendering(self._pieces(rendered, disguise, {}))

    def contents(self, turns: Sequence[Turn]) -> list[str | None]:
        """Each turn's content as the template has it: as it is or trimmed, None where it is changed or left out.

        Raises `UnencodableText`, `TemplateRefused`.
        """
        disguise = Disguise(self._controls)
        shown = [_encodable(disguise.put_on(turn)) for turn in turns]
        rendered = self._rendered(shown, add_generation_prompt=True)
        found: list[str | None] = []
        for n, turn in enumerate(shown):
            hidden = [*shown[:n], Turn(turn.role, disguise.hide(n)), *shown[n + 1 :]]
            around = disguise.find_hidden(self._rendered(hidden, add_generation_prompt=True))[::2]
            whole, trimmed = (text.join(around) == rendered for text in (turn.content, turn.content.strip()))
            own = turns[n].content if whole else turns[n].content.strip()
            found.append(own if len(around) > 1 and (whole or trimmed) else None)
        return found

    def encode(self, rendering: Rendering) -> list[int]:
        """Its ids; answers as they came, unless their ids are not this tokenizer's. Raises `UnencodableText`."""
        ids: list[int] = []
        text = ""
        for piece in [*map(self._trusted, rendering.pieces), ()]:
            if isinstance(piece, str):
                text += piece
                continue
            ids += self.encode_text(text) if text else ()
            text = ""
            ids += [piece] if isinstance(piece, int) else piece
        return ids

    def stands_for(self, ids: Sequence[int], text: str) -> bool:
        """Whether a text may be put into a prompt as these ids: they make it, and none is a control token."""
        return max(ids, default=0) < self.vocab_size and not self._controls.count_ids(ids) and self.decode(ids) == text

    def _trusted(self, piece: Piece) -> str | int | Sequence[int]:
        if not isinstance(piece, Answer):
            return piece
        return piece.token_ids if self.stands_for(piece.token_ids, piece.text) else piece.text

    def _rendered(self, turns: Sequence[Turn], add_generation_prompt: bool) -> str:
        messages = [{"role": turn.role, "content": turn.content} for turn in turns]
        try:
            return self._template.render(messages, add_generation_prompt=add_generation_prompt)
        except TemplateError as error:
            raise TemplateRefused(str(error)) from error

    def _pieces(self, rendered: str, disguise: Disguise, known: Mapping[int, Answer]) -> list[Piece]:
        pieces: list[Piece] = []
        for part in self._controls.split(rendered):
            if isinstance(part, int):
                pieces.append(part)
                continue
            for n, between in enumerate(disguise.find_hidden(part)):
                pieces.append(known[int(between)] if n % 2 else disguise.take_off(between))
        return [piece for piece in pieces if piece != ""]

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


def _guarded(description: dict[str, Any], controls: Controls) -> tokenizers.Tokenizer:
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
