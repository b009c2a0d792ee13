"""drf-spectacular's view of a view, which takes its words from the table of operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ComponentRegistry, ResolvedComponent
from drf_spectacular.utils import Direction, OpenApiExample, OpenApiParameter, OpenApiRequest, OpenApiResponse
from rest_framework.serializers import Serializer

from chat.api.schema import codes, notes, parameters  # noqa: F401  (extensions are known once they are imported)
from chat.api.schema.operation import JSON, Answer, Operation
from chat.api.schema.operations import OPERATIONS
from chat.api.schema.security import SCHEMES, requirements
from chat.api.schema.shapes import ProblemShape, Schema
from chat.problems import Problem

PROBLEM = "application/problem+json"


class Described(AutoSchema):
    """One operation, as the table has it."""

    @property
    def described(self) -> Operation:
        """Its entry. Raises `KeyError` for one that nobody described."""
        return OPERATIONS[self.method, self.path]

    def get_operation(
        self, path: str, path_regex: str, path_prefix: str, method: str, registry: ComponentRegistry
    ) -> Schema | None:
        """As it is derived, with links and whether the body must be there."""
        operation: Schema | None = super().get_operation(path, path_regex, path_prefix, method, registry)
        if operation is None:
            return None
        for status, answer in self.described.answers.items():
            if answer.links:
                operation["responses"][str(status)]["links"] = _links(answer)
        if self.described.body and not self.described.body.is_required:
            operation["requestBody"]["required"] = False
        return operation

    def get_operation_id(self) -> str:
        """What generated clients call it."""
        return self.described.name

    def get_summary(self) -> str:
        """One line."""
        return self.described.summary

    def get_description(self) -> str:  # type: ignore[override]  # as drf-spectacular has it
        """What one must know besides."""
        return self.described.description

    def get_tags(self) -> list[str]:
        """Its section."""
        return [str(self.described.tag)]

    def get_auth(self) -> list[Schema]:
        """By a key of these scopes, or by a session."""
        kind = ResolvedComponent.SECURITY_SCHEMA
        for name, scheme in SCHEMES.items():
            component = ResolvedComponent(name, kind, scheme, name)  # type: ignore[no-untyped-call]
            self.registry.register_on_missing(component)
        return requirements(self.described.scopes, self.method)

    def get_override_parameters(self) -> list[OpenApiParameter | Serializer[Any] | type[Serializer[Any]]]:
        """What it takes, and the headers of what it answers."""
        described = self.described
        refusals = codes.by_status(described.refusals(self.method))
        headers = [
            parameters.retry_after([status for status, found in refusals.items() if any(map(_is_for_later, found))])
        ]
        if described.scopes:
            headers += parameters.of_a_credential([*described.answers, *refusals])
        if described.is_revalidated:
            headers.append(parameters.etag(described.answers))
        if described.is_keyed:
            headers.append(parameters.replayed(described.answers))
        return [*described.parameters, *headers]

    def get_serializer_name(self, serializer: Serializer[Any], direction: Direction) -> str:  # noqa: ARG002
        """Its class's, without what says that it is a shape."""
        return type(serializer).__name__.removesuffix("Shape")

    def get_request_serializer(self) -> Any:
        """Its body's shape, with an example."""
        body = self.described.body
        if body is None:
            return None
        return {JSON: OpenApiRequest(body.shape, examples=[OpenApiExample("Body", body.example)])}

    def get_response_serializers(self) -> Any:
        """Answers, and problems by their status, each with its codes and an example of each."""
        answers = {(status, answer.media_type): _answer(answer) for status, answer in self.described.answers.items()}
        refusals = codes.by_status(self.described.refusals(self.method))
        reference = self.resolve_serializer(ProblemShape, "response").ref
        return answers | {(status, PROBLEM): _refusal(status, found, reference) for status, found in refusals.items()}


def _answer(answer: Answer) -> OpenApiResponse:
    shown = [] if answer.example is None else [OpenApiExample("Answer", answer.example)]
    return OpenApiResponse(answer.shape, answer.about, shown)


def _refusal(status: int, found: Sequence[Problem], reference: Schema) -> OpenApiResponse:
    names = [problem.code for problem in found]
    particular = {"properties": {"status": {"const": status}, "code": {"enum": names}}}
    shown = [OpenApiExample(problem.code, codes.body(problem), summary=problem.title) for problem in found]
    about = ", ".join(f"`{name}`" for name in names)
    return OpenApiResponse({"allOf": [reference, particular]}, about, shown)


def _is_for_later(problem: Problem) -> bool:
    return "Retry-After" in problem.headers


def _links(answer: Answer) -> Schema:
    return {name: _link(name, place) for name, place in answer.links.items()}


def _link(name: str, place: str) -> Schema:
    """To an operation that takes the id in its address."""
    if name == "continueChat":
        return {"operationId": "openChat", "requestBody": {"continues": place}}
    [taken] = [
        given.name
        for operation in OPERATIONS.values()
        if operation.name == name
        for given in operation.parameters
        if given.location == OpenApiParameter.PATH
    ]
    return {"operationId": name, "parameters": {taken: place}}
