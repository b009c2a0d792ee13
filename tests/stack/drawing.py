"""Requests drawn from the API's description, and what is looked for in the answers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
import requests
import schemathesis
from schemathesis import GenerationMode
from schemathesis.checks import CheckFunction, not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.generation.stateful import APIStateMachine
from schemathesis.generation.stateful.state_machine import StepInput, StepOutput
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ensure_resource_availability,
    missing_required_header,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
    use_after_free,
)

from chat.api.schema.parameters import UUID
from tests.stack.stack import Stack, new_users

ALL_SCOPES = """
    UPDATE chat_apikey SET scopes = '{read,write,admin}' WHERE digest = encode(sha256(%s::bytea), 'hex')
"""
EVENTS = "text/event-stream"
PATIENCE_S = 30
IS_UUID = re.compile(UUID)
BOTH = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
# Of a stream only the head is read: it would not end.
OF_A_HEAD: Sequence[CheckFunction] = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
)
# Not that all that is valid is accepted: a schema cannot say what Unicode calls blank, nor how full a chat is.
OF_ALL: Sequence[CheckFunction] = (
    *OF_A_HEAD,
    response_schema_conformance,
    negative_data_rejection,
    missing_required_header,
    unsupported_method,
    use_after_free,
    ensure_resource_availability,
)
# 413 too, which is no refusal to schemathesis. A server's errors are looked for by a check of their own.
REFUSALS = {"checks": {"negative_data_rejection": {"expected-statuses": ["4xx", "5xx"]}}}
# Of these shapes more may come than is described: keys that are not known are ignored, and some codes come with data.
OPEN_SHAPES = {"NewChat", "Question", "Renaming", "NewKey", "Problem"}

Case = schemathesis.Case[Any]


@dataclass(frozen=True)
class Link:
    """An operation, and what stands in its address."""

    name: str
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """An answer, and the links that are described with it."""

    answer: schemathesis.Response
    links: Mapping[str, Any]

    def to(self, name: str) -> Link:
        """Its link to that operation."""
        told = self.answer.json()
        places = self.links[name]["parameters"]
        return Link(name, {taken: told[place.rpartition("/")[2]] for taken, place in places.items()})


@dataclass
class Drawn:
    """A served description, whoever asks now, and how often each operation answered with which status."""

    stack: Stack
    document: Any
    schema: Any
    headers: dict[str, str] = field(default_factory=dict)
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    failures: list[FailureGroup] = field(default_factory=list)
    session: requests.Session = field(default_factory=requests.Session)

    @property
    def url(self) -> str:
        """Where it is served."""
        return f"http://127.0.0.1:{self.stack.port}"

    def arrive(self) -> None:
        """Be another user from now on, whose key may do everything."""
        [key] = new_users(self.stack.database_url, 1)
        with psycopg.connect(self.stack.database_url, autocommit=True) as connection:
            connection.execute(ALL_SCOPES, [key])
        self.headers = {"Authorization": f"Bearer {key}"}

    def belongings(self) -> Mapping[str, str]:
        """Something of whoever asks, for each kind of id."""
        chat = self.go(Link("openChat"), {})
        asked = self.go(chat.to("ask"), {"content": "Hello"})
        key = self.go(Link("makeKey"), {"name": "laptop"})
        found = [chat.to("readChat"), asked.to("readRun"), asked.to("readMessage"), key.to("readKey")]
        return {name: value for link in found for name, value in link.parameters.items()}

    def boundaries(self, operation: Any) -> Iterator[Case]:
        """Requests at and beyond each bound of an operation, and by methods that its address does not take."""
        found: Iterator[Case] = self.schema.iter_coverage_cases(
            operation, generation_modes=BOTH, generation_config=self.schema.config.generation
        )
        return found

    def go(self, link: Link, body: Any = None) -> Step:
        """Do what a link leads to."""
        path, method = next(
            (path, method)
            for path, methods in self.document["paths"].items()
            for method, operation in methods.items()
            if operation["operationId"] == link.name
        )
        sent = {} if body is None else {"body": body, "media_type": "application/json"}
        answer = self.try_out(self.schema[path][method].Case(path_parameters=dict(link.parameters), **sent))
        described = self.document["paths"][path][method]["responses"][str(answer.status_code)]
        return Step(answer, described.get("links", {}))

    def try_out(self, case: Case) -> schemathesis.Response:
        """Send it, and check what is answered."""
        answer = self.call(case)
        self.check(case, answer)
        return answer

    def call(self, case: Case) -> schemathesis.Response:
        """Send it; of an endless answer only the head is read."""
        if case.operation.path.endswith(("/stream", "/events")):
            answer = self._head(case)
        else:
            answer = case.call(base_url=self.url, session=self.session, headers=dict(self.headers), timeout=PATIENCE_S)
        self.answers[case.operation.label, answer.status_code] += 1
        return answer

    def check(self, case: Case, answer: schemathesis.Response, recorder: Any = None) -> None:
        """Raises `FailureGroup` where it is not what is described, and keeps it."""
        is_stream = answer.headers.get("content-type", [""])[0].startswith(EVENTS)
        sent = {"base_url": self.url, "headers": dict(self.headers)}
        try:
            case.validate_response(
                answer, checks=list(OF_A_HEAD if is_stream else OF_ALL), transport_kwargs=sent, recorder=recorder
            )
        except FailureGroup as failure:
            self.failures.append(failure)
            raise

    def walker(self) -> type[APIStateMachine]:
        """A state machine that follows the description's links, as a new user each time."""
        drawn = self

        class Walker(self.schema.as_state_machine()):  # type: ignore[misc]
            def setup(self) -> None:
                drawn.arrive()
                self.ours = drawn.belongings()

            def step(self, input: StepInput) -> StepOutput:  # as it is called
                # What no link leads to is done to something that there is.
                if input.transition is None and names_possible_ids(input.case):
                    input.case.path_parameters = {name: self.ours[name] for name in input.case.path_parameters}
                done: StepOutput = super().step(input)
                return done

            def before_call(self, case: Case) -> None:
                # Of a model that there is: else hardly a walk would come to a run.
                if isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
                    case.body = {**case.body, "model": None}

            def call(self, case: Case, **_: Any) -> schemathesis.Response:
                return drawn.call(case)

            def validate_response(self, response: schemathesis.Response, case: Case, **_: Any) -> None:
                drawn.check(case, response, self.recorder)

        return Walker

    def _head(self, case: Case) -> schemathesis.Response:
        request = case.as_transport_kwargs(base_url=self.url, headers=dict(self.headers))
        # A connection of its own, which is cut off.
        with requests.Session() as session:
            answer = session.request(**request, stream=True, timeout=PATIENCE_S)
            if answer.headers.get("content-type", "").startswith(EVENTS):
                answer._content = b""
            return schemathesis.Response.from_requests(answer, verify=True)


def names_possible_ids(case: Case) -> bool:
    """Whether its address names something that there could be."""
    named = [str(value) for value in case.path_parameters.values()]
    return bool(named) and all(map(IS_UUID.fullmatch, named))


def drawn_from(stack: Stack) -> Drawn:
    """What a stack serves."""
    document = requests.get(f"http://127.0.0.1:{stack.port}/api/schema", timeout=PATIENCE_S).json()
    for name, shape in document["components"]["schemas"].items():
        if name not in OPEN_SHAPES:
            shape["additionalProperties"] = False
    config = schemathesis.Config.from_dict(REFUSALS)
    return Drawn(stack, document, schemathesis.openapi.from_dict(document, config=config))
