"""Small model folders, whole by the rules though no engine could use them."""

from __future__ import annotations

import json
import struct
from pathlib import Path

SHARD_BYTES = 200_000


def files(shards: int = 2, shard_bytes: int = SHARD_BYTES) -> dict[str, bytes]:
    """The files of a model by name, with some that nobody needs."""
    names = [f"model-{n:05}-of-{shards:05}.safetensors" for n in range(1, shards + 1)]
    index = {"weight_map": {f"layer.{n}": name for n, name in enumerate(names)}}
    weights = {name: safetensors(n, shard_bytes) for n, name in enumerate(names)}
    return {
        "config.json": b'{"architectures": ["MadeUp"]}',
        "tokenizer.json": b'{"added_tokens": []}',
        "tokenizer_config.json": b'{"chat_template": "{{ messages }}"}',
        "model.safetensors.index.json": json.dumps(index).encode(),
        "README.md": b"Not needed.",
        "pytorch_model.bin": b"Not served.",
        "original/consolidated.safetensors": b"Not needed either.",
        **weights,
    }


def needed(made: dict[str, bytes]) -> dict[str, bytes]:
    """Those of them that make a model."""
    return {name: made[name] for name in made if name.endswith((".json", ".safetensors")) and "/" not in name}


def safetensors(number: int, size_bytes: int) -> bytes:
    """One tensor of so many bytes."""
    tensor = {"dtype": "U8", "shape": [size_bytes], "data_offsets": [0, size_bytes]}
    head = json.dumps({f"layer.{number}": tensor}).encode()
    return struct.pack("<Q", len(head)) + head + (b"%08d" % number) * (size_bytes // 8) + bytes(size_bytes % 8)


def write(folder: Path, made: dict[str, bytes]) -> Path:
    """Lay them down."""
    for name, content in made.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def read(folder: Path) -> dict[str, bytes]:
    """What lies on the folder's top level."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
