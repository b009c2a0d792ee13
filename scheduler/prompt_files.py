"""The files that prompts are made with, tokenizer and chat template, on this machine, without any weights."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from django.conf import settings

from inference.sources import Manifest, Source, SourceError, fetch_prompt_files
from inference.tokens import TokenizerUnusable

if TYPE_CHECKING:
    from scheduler.models import Model

VERSIONS_KEPT = 256


def folder_of(model: Model) -> Path:
    """Where they are. Fetched once a process and version, where they are elsewhere. Raises `TokenizerUnusable`."""
    source = model.source
    if source.startswith("/") or model.version_id is None:
        return Path(source)
    try:
        return _fetched(model.version_id, source)
    except SourceError as error:
        raise TokenizerUnusable(str(error)) from error


@lru_cache(VERSIONS_KEPT)
def _fetched(version_id: int, source: str) -> Path:
    from scheduler.models import ModelVersion

    version = ModelVersion.objects.only("revision", "manifest").get(pk=version_id)
    expected = Manifest.from_json(version.manifest) if version.manifest else None
    return fetch_prompt_files(Source.parse(source), version.revision, cache=settings.MODEL_CACHE, expected=expected)
