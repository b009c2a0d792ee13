"""python -m tests.inference.sources.fetching_process SOURCE CACHE [REVISION]: a worker's fetch, told as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from inference.sources import Source, SourceError, fetch, fetch_prompt_files


def main(source: str, cache: str, revision: str = "") -> None:
    """Prints one line: what was fetched, or why not."""
    sys.stdout.write(json.dumps(_told(Source.parse(source), Path(cache), revision)))


def _told(source: Source, cache: Path, revision: str) -> dict[str, Any]:
    told: list[tuple[int, int]] = []
    try:
        fetched = fetch(source, revision, cache=cache, on_progress=lambda *progress: told.append(progress))
        prompt_files = fetch_prompt_files(source, fetched.revision, cache=cache, expected=fetched.manifest)
    except SourceError as error:
        return {"code": error.code, "text": str(error), "told": told}
    return {
        "folder": str(fetched.folder),
        "prompt_files": str(prompt_files),
        "revision": fetched.revision,
        "digest": fetched.manifest.digest,
        "told": told,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
