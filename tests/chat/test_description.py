"""The API's description: valid, complete, true to its own examples, and readable by people."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import jsonschema_rs
import pytest
from django.conf import settings
from django.core.management import call_command
from django.test import Client

from chat.api.schema import codes, generation
from chat.api.schema.operations import OPERATIONS
from chat.problems import Problem
from tests.faults import asks

ANYWHERE = {"forbidden", "method_not_allowed", "internal_error"}
# Of what a page may not have, since its policy lets none of it run.
ACTIVE = re.compile(r"<script|<style|\bstyle=|\bon\w+=|https?://")
Json = Any


def operations() -> Iterator[tuple[str, str, Json]]:
    """All that are described: method, path, operation."""
    for path, methods in generation.document()["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def contents() -> Iterator[tuple[str, Json]]:
    """Every content of a request or an answer, and where it stands."""
    for method, path, operation in operations():
        bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
        for body in bodies:
            for media_type, content in body.get("content", {}).items():
                yield f"{method} {path} {media_type}", content


def test_it_is_valid_and_nothing_of_it_is_guessed(tmp_path: Path) -> None:
    file = tmp_path / "schema.json"

    call_command("spectacular", "--validate", "--fail-on-warn", "--format", "openapi-json", "--file", str(file))

    assert '"openapi": "3.1.0"' in file.read_text()


def test_every_method_of_every_address_is_described() -> None:
    served = {
        (method, asks.ARGUMENT.sub(lambda found: f"{{{found[0][1:-1].rpartition(':')[2]}}}", route))
        for method, route in asks.served()
        if route.startswith("/api/") and route != "/api/"
    }

    assert {(method, path) for method, path, _ in operations()} == served == set(OPERATIONS)


def test_every_example_is_what_its_schema_says() -> None:
    components = generation.document()["components"]
    checked = 0
    for place, content in contents():
        validator = jsonschema_rs.Draft202012Validator(
            {**content["schema"], "components": components}, validate_formats=True
        )
        for name, example in content.get("examples", {}).items():
            errors = [error.message for error in validator.iter_errors(example["value"])]
            assert errors == [], f"{place} {name}"
            checked += 1

    assert checked > len(OPERATIONS)


def test_every_operation_says_what_it_is_and_shows_an_answer() -> None:
    names = [operation["operationId"] for _, _, operation in operations()]

    assert len(set(names)) == len(names)
    for method, path, operation in operations():
        assert operation["summary"], path
        successes = [answer for status, answer in operation["responses"].items() if status < "300"]
        shown = [content.get("examples") for answer in successes for content in answer.get("content", {}).values()]
        assert operation["tags"] == ["Description"] or all(shown), f"{method} {path}"


def test_every_link_leads_to_an_operation_and_its_parameter() -> None:
    taken = {
        operation["operationId"]: {given["name"] for given in operation.get("parameters", ())}
        for _, _, operation in operations()
    }
    links = [
        link
        for _, _, operation in operations()
        for answer in operation["responses"].values()
        for link in answer.get("links", {}).values()
    ]

    assert {"ask", "readRun", "cancelRun", "retryRun", "followRun", "deleteChat"} <= {
        link["operationId"] for link in links
    }
    assert all(set(link.get("parameters", ())) <= taken[link["operationId"]] for link in links)


# Under /v1/, which has a description of its own.
OF_PROGRAMS = ("chat.openai.", "chat.programs")


def fixed_codes(root: type[Problem]) -> Iterator[str]:
    """The codes of the kinds of problems that always have the same."""
    for kind in root.__subclasses__():
        if kind.__module__.startswith("chat.") and not kind.__module__.startswith(OF_PROGRAMS):
            yield kind.code
            yield from fixed_codes(kind)


def test_every_code_is_described() -> None:
    described = {code for (method, _), operation in OPERATIONS.items() for code in operation.refusals(method)}

    assert set(fixed_codes(Problem)) <= set(codes.SPECIMENS)
    assert described | ANYWHERE == set(codes.SPECIMENS)


def test_the_handbook_lists_the_same_codes() -> None:
    text = (settings.BASE_DIR / "docs/api.md").read_text()
    table = text.partition("## Codes")[2].partition("\n\nAfter")[0]
    data = {"run_id", "turns", "limit", "scope"}  # of what comes beside a code

    assert set(re.findall(r"`(\w+)`", table)) - data == set(codes.SPECIMENS)


@pytest.mark.parametrize("address", ["/api/schema", "/api/docs"])
def test_anybody_may_read_it(client: Client, address: str) -> None:
    answer = client.get(address)

    assert answer.status_code == 200
    assert "sessionid" not in answer.cookies
    assert client.post(address).json()["code"] == "method_not_allowed"


def test_it_is_served_as_it_was_made(client: Client) -> None:
    answer = client.get("/api/schema")

    assert answer.headers["Content-Type"] == "application/vnd.oai.openapi+json"
    assert answer.json() == generation.document()


def test_its_page_shows_every_operation_and_runs_nothing(client: Client) -> None:
    page = client.get("/api/docs").content.decode()

    for (method, path), operation in OPERATIONS.items():
        assert f'<h3 id="{operation.name}">' in page
        assert f"<code>{method} {path}</code>" in page
    for code in set(codes.SPECIMENS) - ANYWHERE:
        assert f"<code>{code}</code>" in page
    assert ACTIVE.findall(page) == []


def test_it_is_made_once_though_many_ask_for_it_first() -> None:
    generation._made.cache_clear()
    barrier = Barrier(8)

    def ask(_: int) -> bytes:
        barrier.wait()
        return json.dumps(generation.document()).encode()

    with ThreadPoolExecutor(8) as threads:
        told = set(threads.map(ask, range(8)))

    assert len(told) == 1
