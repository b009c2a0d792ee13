"""Where a model's files come from: a local folder, the hub, an S3 bucket. Nothing heavy is imported before."""

from inference.sources.errors import SourceError
from inference.sources.fetching import fetch, fetch_prompt_files
from inference.sources.manifest import Manifest
from inference.sources.order import Fetched
from inference.sources.source import Source

__all__ = ["Fetched", "Manifest", "Source", "SourceError", "fetch", "fetch_prompt_files"]
