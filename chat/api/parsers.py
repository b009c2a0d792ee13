"""How bodies are read."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import IO, Any

from django.conf import settings
from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser

from chat import problems


class BoundedJSONParser(JSONParser):
    """JSON up to DATA_UPLOAD_MAX_MEMORY_SIZE, which DRF's own parser never looks at."""

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """The parsed body. Raises `BodyTooLarge`, `ParseError`."""
        most_bytes = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        body = stream.read(most_bytes + 1)
        if len(body) > most_bytes:
            raise problems.BodyTooLarge(max_bytes=most_bytes)
        try:
            return super().parse(BytesIO(body), media_type, parser_context)
        except (RecursionError, LookupError) as error:
            # Nested a thousand deep; an unknown charset.
            raise ParseError from error
