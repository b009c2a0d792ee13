"""OpenAI's own clients, of the running product."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from openai import OpenAI

from tests.stack.stack import Stack


@pytest.fixture
def base_url(scripted_stack: Stack) -> str:
    return f"http://127.0.0.1:{scripted_stack.port}/v1"


@pytest.fixture
def client(base_url: str, scripted_stack: Stack) -> Iterator[OpenAI]:
    with OpenAI(base_url=base_url, api_key=scripted_stack.key, max_retries=0, timeout=60) as client:
        yield client
