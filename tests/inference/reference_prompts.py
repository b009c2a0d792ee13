"""Token ids of prompts by transformers, one chat a line; run as `python -m tests.inference.reference_prompts FOLDER`.

The rule for control tokens in its own way: the template sees a mark for each content, so that whatever control tokens
are then in the rendering are the template's; between them stands text, which is encoded with `split_special_tokens`.
An answer with `token_ids` that make its text is there as these ids.

Each line comes back as `ids`, and where no content spells a control token, or has ids, with `plain`: what
`apply_chat_template` gives for the messages as they are.
"""

from __future__ import annotations

import json
import re
import secrets
import sys
from collections.abc import Iterator, Sequence
from typing import Any

# Seconds to import, and tokenizers need none of it.
sys.modules["torch"] = None  # type: ignore[assignment]

from transformers import AutoTokenizer  # noqa: E402 - see above

reference = AutoTokenizer.from_pretrained(sys.argv[1], local_files_only=True)
controls = {token.content: number for number, token in reference.added_tokens_decoder.items() if token.special}
CONTROL = re.compile("(" + "|".join(map(re.escape, controls)) + ")")
MARK = secrets.token_hex(16)

Messages = Sequence[dict[str, Any]]


def ids_of(messages: Messages) -> list[int]:
    """By the rule."""
    found: list[int] = []
    text = ""
    for piece in [*pieces(messages), []]:
        if isinstance(piece, str):
            text += piece
            continue
        found += reference(text, add_special_tokens=False, split_special_tokens=True)["input_ids"] if text else []
        found += piece
        text = ""
    return found


def pieces(messages: Messages) -> Iterator[str | list[int]]:
    """Text, and what is ids already."""
    marked = [{"role": message["role"], "content": f"{MARK}{n:06d}"} for n, message in enumerate(messages)]
    for part in CONTROL.split(rendered(marked)):
        if part in controls:
            yield [controls[part]]
            continue
        for n, between in enumerate(re.split(f"{MARK}(.{{6}})", part)):
            yield said(messages[int(between)]) if n % 2 else between


def said(message: dict[str, Any]) -> str | list[int]:
    """A content: as ids where these are known, and its own."""
    ids = message.get("token_ids") or []
    is_ours = ids and max(ids) < len(reference) and not set(ids) & set(controls.values())
    return (
        ids
        if is_ours and reference.decode(ids, clean_up_tokenization_spaces=False) == message["content"]
        else str(message["content"])
    )


def plain(messages: Messages) -> list[int] | None:
    """By transformers alone, which knows no rule; None where one is needed."""
    as_text = [{"role": message["role"], "content": message["content"]} for message in messages]
    of_template = rendered([{"role": message["role"], "content": ""} for message in messages])
    if any(message.get("token_ids") for message in messages):
        return None
    if len(CONTROL.findall(rendered(as_text))) != len(CONTROL.findall(of_template)):
        return None
    found: list[int] = reference.apply_chat_template(as_text, add_generation_prompt=True, return_dict=False)
    return found


def rendered(messages: Messages) -> str:
    """By the template."""
    return str(reference.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))


for line in sys.stdin:
    chat = json.loads(line)
    sys.stdout.write(json.dumps({"ids": ids_of(chat), "plain": plain(chat)}) + "\n")
    sys.stdout.flush()
