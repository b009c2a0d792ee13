"""The description as its page shows it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any

from chat.api.schema.generation import document
from chat.api.schema.operations import OPERATIONS
from chat.api.schema.shapes import Schema


@dataclass(frozen=True, slots=True)
class Row:
    """A parameter, or a field of a body."""

    name: str
    place: str
    type: str
    bounds: str
    is_required: bool
    about: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """One code, with what is told to people."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What comes with one status."""

    status: str
    about: str
    media_type: str
    example: str
    refusals: Sequence[Refusal]


@dataclass(frozen=True, slots=True)
class Entry:
    """One operation."""

    name: str
    method: str
    path: str
    summary: str
    about: str
    needs: str
    parameters: Sequence[Row]
    fields: Sequence[Row]
    sent: str
    answers: Sequence[Answer]
    refusals: Sequence[Answer]


@dataclass(frozen=True, slots=True)
class Section:
    """The operations of one tag."""

    title: str
    entries: Sequence[Entry]


BOUNDS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "length {} or more",
    "maxLength": "length {} or less",
    "minItems": "{} or more",
    "maxItems": "{} or fewer",
    "default": "{} unless told",
    "enum": "one of {}",
}


@cache
def about() -> Sequence[str]:
    """The paragraphs that stand before all."""
    return _paragraphs(document()["info"]["description"])


@cache
def sections() -> Sequence[Section]:
    """All operations, in the order of their table."""
    grouped = groupby(_entries(), key=lambda found: found[0])
    return [Section(tag, [entry for _, entry in found]) for tag, found in grouped]


def _entries() -> Iterator[tuple[str, Entry]]:
    paths = document()["paths"]
    for method, path in OPERATIONS:
        operation = paths[path][method.lower()]
        yield operation["tags"][0], _entry(method, path, operation)


def _entry(method: str, path: str, operation: Schema) -> Entry:
    answers = [_answer(status, answer) for status, answer in operation["responses"].items()]
    body = _json(operation.get("requestBody", {}))
    return Entry(
        name=operation["operationId"],
        method=method,
        path=path,
        summary=operation["summary"],
        about=operation.get("description", ""),
        needs=_needs(operation),
        parameters=[_parameter(given) for given in operation.get("parameters", ())],
        fields=_fields(body),
        sent=_shown(body),
        answers=[answer for answer in answers if not answer.refusals],
        refusals=[answer for answer in answers if answer.refusals],
    )


def _needs(operation: Schema) -> str:
    schemes = operation.get("security", ())
    return ", ".join(f"`{scope}`" for scheme in schemes for scope in scheme.get("key", ()))


def _parameter(given: Schema) -> Row:
    about = given.get("description", "")
    return Row(given["name"], given["in"], *_typed(given["schema"]), given.get("required", False), about)


def _fields(body: Schema) -> Sequence[Row]:
    shape = _resolved(body.get("schema", {}))
    required = shape.get("required", ())
    return [
        Row(name, "body", *_typed(field), name in required, field.get("description", ""))
        for name, field in shape.get("properties", {}).items()
    ]


def _answer(status: str, answer: Schema) -> Answer:
    contents: Schema = answer.get("content", {})
    media_type = next(iter(contents), "")
    content: Schema = contents.get(media_type, {})
    is_refusal = media_type == "application/problem+json"
    examples = _examples(content) if is_refusal else []
    return Answer(
        status=status,
        about="" if is_refusal else answer["description"],
        media_type=media_type,
        example="" if is_refusal else _shown(content),
        refusals=[Refusal(value["code"], value["detail"]) for value in examples],
    )


def _json(body: Schema) -> Schema:
    content: Schema = body.get("content", {}).get("application/json", {})
    return content


def _shown(content: Schema) -> str:
    values = _examples(content)
    if not values:
        return ""
    return values[0] if isinstance(values[0], str) else json.dumps(values[0], ensure_ascii=False, indent=2)


def _examples(content: Schema) -> list[Any]:
    return [example["value"] for example in content.get("examples", {}).values()]


def _typed(schema: Schema) -> tuple[str, str]:
    """Its type and its bounds, in words."""
    types = schema.get("type", "object")
    names = [types] if isinstance(types, str) else list(types)
    items = schema.get("items", {})
    if "format" in schema:
        names[0] = schema["format"]
    if items:
        names[0] = f"array of {items.get('type', 'object')}"
    limits = {**items, **schema} if items else schema
    return " or ".join(names), "; ".join(_bounds(limits))


def _bounds(schema: Mapping[str, Any]) -> Iterator[str]:
    for key, words in BOUNDS.items():
        value = schema.get(key)
        if value is not None:
            yield words.format(", ".join(map(str, value)) if isinstance(value, list) else value)


def _resolved(schema: Schema) -> Schema:
    reference = schema.get("$ref")
    if reference is None:
        return schema
    found: Schema = document()["components"]["schemas"][reference.rpartition("/")[2]]
    return found


def _paragraphs(text: str) -> Sequence[str]:
    return [paragraph.replace("\n", " ") for paragraph in text.strip().split("\n\n")]
