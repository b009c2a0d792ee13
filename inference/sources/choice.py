"""Which of a source's files are a model's, the same for every kind of source."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from fnmatch import fnmatchcase

from inference.sources.errors import NotServable, UnsafeName

# What vLLM, the tokenizer and the chat template may read. Not README, *.bin, *.pth, *.gguf, *.py, and nothing in
# folders below (original/, onnx/, .git/, checkpoint-500/).
WHOLE = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.tiktoken", "merges.txt", "vocab.txt")
# What `inference.tokens` and `inference.chat_template` read, and what transformers would read in their place.
PROMPT = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "config.json",
    "generation_config.json",
)
OTHER_WEIGHTS = ("*.bin", "*.pth", "*.pt", "*.gguf", "*.ckpt", "*.h5")


class Choice(StrEnum):
    """All that a worker needs, or the little by which a web process makes prompts."""

    WHOLE = "whole"
    PROMPT = "prompt"

    @property
    def patterns(self) -> tuple[str, ...]:
        """Of file names, all on the top level."""
        return WHOLE if self is Choice.WHOLE else PROMPT

    def takes(self, name: str) -> bool:
        """Whether a file of this name is fetched."""
        return "/" not in name and not name.startswith(".") and _matches(name, self.patterns)

    def check(self, names: Collection[str], where: str) -> None:
        """Raises `NotServable` when a needed file is not among these names."""
        for needed in ("config.json", "tokenizer.json"):
            if needed not in names:
                raise NotServable(f"{where} has no {needed}", "Name the folder or prefix that holds the model's files.")
        if self is Choice.WHOLE and not any(_matches(name, ("*.safetensors",)) for name in names):
            other = sorted(name for name in names if _matches(name, OTHER_WEIGHTS))
            held = f", but {other[0]}" if other else ""
            raise NotServable(
                f"{where} has no *.safetensors{held}",
                "Only safetensors are served; transformers' save_pretrained writes them.",
            )


def check_name(name: str, where: str) -> None:
    """Raises `UnsafeName` when the path, as another machine wrote it, could lead out of a folder."""
    if "\0" in name or "\\" in name or name.startswith("/") or ".." in name.split("/"):
        shown = name.encode("unicode_escape").decode("ascii")[:80]
        raise UnsafeName(f"{where} holds {shown!r}, a name that could lead out of a folder", "Remove it there.")


def _matches(name: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
