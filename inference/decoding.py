"""From token ids back to text, piece by piece, without ever showing half a character."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Protocol

import tokenizers
from tokenizers.decoders import DecodeStream


class Decoding(Protocol):
    """One run's decoding; `push` and `flush` as in `tokens.Decoder`."""

    def push(self, ids: Iterable[int]) -> str: ...

    def flush(self) -> str: ...


class ByteVocabulary:
    """The bytes each token of a byte-level BPE stands for."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._skipped = {id_ for id_, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        self._known: dict[int, bytes] = {}

    def bytes_of(self, token_id: int) -> bytes:
        """The token's bytes; none for a special token or an id out of vocabulary."""
        if token_id not in self._known:
            self._known[token_id] = self._look_up(token_id)
        return self._known[token_id]

    def _look_up(self, token_id: int) -> bytes:
        token = None if token_id in self._skipped else self._tokenizer.id_to_token(token_id)
        if token is None:
            return b""
        byte_of = _byte_alphabet()
        if all(character in byte_of for character in token):
            return bytes(byte_of[character] for character in token)
        return token.encode()  # an added token that is plain text, as the tokenizers library takes it


class ByteLevelDecoding:
    """Exact for every sequence of ids, in whichever pieces they come: UTF-8 may be decoded cut anywhere."""

    def __init__(self, vocabulary: ByteVocabulary) -> None:
        self._vocabulary = vocabulary
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, ids: Iterable[int]) -> str:
        """Text of the characters that `ids` complete."""
        return self._utf8.decode(b"".join(map(self._vocabulary.bytes_of, ids)))

    def flush(self) -> str:
        """U+FFFD for a character that never became whole."""
        return self._utf8.decode(b"", final=True)


class StreamDecoding:
    """For other tokenizers (SentencePiece): the library's own stream, and at the end its one-shot decode.

    Exact where the bytes make up whole characters in the end. The one-shot decode turns a whole run of byte tokens into
    U+FFFD when any of it is broken; the characters of such a run that were shown already stay as they were.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._ids: list[int] = []
        self._shown: list[str] = []

    def push(self, ids: Iterable[int]) -> str:
        """Text of the characters that `ids` complete."""
        text = "".join(self._step(token_id) for token_id in ids)
        self._shown.append(text)
        return text

    def _step(self, token_id: int) -> str:
        self._ids.append(token_id)
        return self._stream.step(self._tokenizer, token_id) or ""

    def flush(self) -> str:
        """What the one-shot decode has beyond the text shown so far."""
        whole = self._tokenizer.decode(self._ids, skip_special_tokens=True)
        return whole[len("".join(self._shown)) :]


@cache
def _byte_alphabet() -> dict[str, int]:
    """GPT-2's alphabet: a printable character for each byte, itself where it is one, else from U+0100 on."""
    printable: Sequence[int] = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}
