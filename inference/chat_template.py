"""Chat templates: jinja2 in its sandbox, with what templates written for transformers expect to find there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

Message = Mapping[str, str]


class ChatTemplate:
    """A compiled template. Raises `jinja2.TemplateError` when it does not compile or refuses the messages."""

    def __init__(self, source: str, named_tokens: Mapping[str, str]) -> None:
        self._template = _environment().from_string(source)
        self._named_tokens = dict(named_tokens)

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        """The chat as one string, template tokens included."""
        try:
            return self._template.render(
                messages=[dict(message) for message in messages],
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **self._named_tokens,
            )
        except TypeError as error:  # a template that adds a string to nothing, and the like
            raise TemplateError(str(error)) from error

    @classmethod
    def load(cls, folder: Path) -> ChatTemplate:
        """The model's template, with its `bos_token` and the like. Raises `OSError`, `ValueError`, `KeyError`."""
        config: dict[str, Any] = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
        file = folder / "chat_template.jinja"
        source = file.read_text("utf-8") if file.exists() else _template_in(config)
        return cls(source, _named_tokens(config))


def _template_in(config: dict[str, Any]) -> str:
    """The template in tokenizer_config.json: a string, or the one named default in a list."""
    entry = config["chat_template"]
    if isinstance(entry, str):
        return entry
    named = {template["name"]: template["template"] for template in entry}
    return str(named["default"])


def _named_tokens(config: dict[str, Any]) -> dict[str, str]:
    """`eos_token` and the like, which are a string or an object with `content`."""
    named = {}
    for name, token in config.items():
        content = token.get("content") if isinstance(token, dict) else token
        if name.endswith("_token") and isinstance(content, str):
            named[name] = content
    return named


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationBlocks]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class _GenerationBlocks(Extension):
    """`{% generation %}`, which marks what the assistant said for training; for us only its body counts."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's own declaration

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without jinja2's escaping of HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
