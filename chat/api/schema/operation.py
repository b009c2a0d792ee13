"""What is said of one operation of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from drf_spectacular.utils import OpenApiParameter

from chat.api.schema import codes, parameters, shapes
from chat.models import Scope

JSON, EVENTS, HTML, OPENAPI = "application/json", "text/event-stream", "text/html", "application/vnd.oai.openapi+json"


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered when all is well. `links` name the operations that go on from it, and where their ids are."""

    about: str
    shape: type[shapes.Shape] | shapes.Schema | None = None
    example: Any = None
    media_type: str = JSON
    links: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Body:
    """What is sent."""

    shape: type[shapes.Shape]
    example: Any
    is_required: bool = True


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one address. `scopes` are those that its key needs; with none, anybody may ask."""

    name: str
    tag: str
    summary: str
    answers: Mapping[int, Answer]
    description: str = ""
    scopes: tuple[Scope, ...] = (Scope.READ,)
    body: Body | None = None
    parameters: tuple[OpenApiParameter, ...] = ()
    codes: tuple[str, ...] = ()

    @property
    def is_keyed(self) -> bool:
        """Whether it heeds an Idempotency-Key."""
        return parameters.IDEMPOTENCY_KEY in self.parameters

    @property
    def is_revalidated(self) -> bool:
        """Whether who has its answer can ask if that is still so."""
        return parameters.IF_NONE_MATCH in self.parameters

    @property
    def is_stream(self) -> bool:
        """Whether its answer comes in pieces."""
        return any(answer.media_type == EVENTS for answer in self.answers.values())

    def refusals(self, method: str) -> tuple[str, ...]:
        """The codes of all problems that it may answer with."""
        found = codes.EVERYWHERE + self.codes
        found += codes.STREAM if self.is_stream else codes.VIEW
        found += codes.CREDENTIAL if self.scopes else ()
        found += codes.KEYED if self.is_keyed else ()
        found += ("not_found",) if self._looks_up else ()
        found += codes.CHANGE if method != "GET" else ()
        # A key is known by its request's body too.
        return found + (codes.BODY if self.body or self.is_keyed else ())

    @property
    def _looks_up(self) -> bool:
        return self.is_keyed or any(given.location == OpenApiParameter.PATH for given in self.parameters)
