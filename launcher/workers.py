"""The environment of each GPU worker: cores or a GPU of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from launcher.cores import divide

# Honcho kills five seconds after it asked; an engine needs one or two of them, a web process a moment.
DRAIN_S = 3


def environments(count: int, hardware: str, ready: Path) -> list[dict[str, str]]:
    """One environment for each worker; it touches its `READY_FILE` below `ready` once it serves."""
    common = {"DRAIN_S": str(DRAIN_S)}
    places = _on_gpus(count) if hardware == "gpu" else _on_cores(count)
    return [
        {**common, **place, "READY_FILE": str(ready / f"gpu{number}")} for number, place in enumerate(places, start=1)
    ]


def _on_cores(count: int) -> list[dict[str, str]]:
    cores = [str(core) for core in sorted(os.sched_getaffinity(0))]
    return [
        {
            # As many threads as cores, and on none but these: without that every worker's are on all.
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(share.count(",") + 1)),
            "OMP_PLACES": f"{{{share}}}",
            "OMP_PROC_BIND": "true",
            # Its warnings at start-up say again and again that this is a CPU.
            "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "ERROR"),
            "PYTHONWARNINGS": "ignore",
        }
        for share in divide(cores, count, "core")
    ]


def _on_gpus(count: int) -> list[dict[str, str]]:
    return [{"CUDA_VISIBLE_DEVICES": share} for share in divide(_gpus(os.environ), count, "GPU")]


def _gpus(environ: Mapping[str, str]) -> list[str]:
    if environ.get("CUDA_VISIBLE_DEVICES"):
        return environ["CUDA_VISIBLE_DEVICES"].split(",")
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    return [str(number) for number, _line in enumerate(listed.strip().splitlines())]
