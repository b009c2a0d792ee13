"""How bodies are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser


class SturdyJSONParser(JSONParser):
    """DRF's own, which lets two kinds of broken JSON through as crashes."""

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """The parsed body. Raises `ParseError`, also for what is nested a thousand deep or in an unknown charset."""
        try:
            return super().parse(stream, media_type, parser_context)
        except (RecursionError, LookupError) as error:
            raise ParseError from error
