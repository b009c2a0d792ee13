"""What a test ran on."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil


def described() -> Mapping[str, Any]:
    """In words and numbers that do not tell whose it is."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": _processor(),
        "memory GB": round(psutil.virtual_memory().total / 1e9, 1),
        "GPUs": _gpus() or "none",
        "system": platform.system(),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _gpus() -> str:
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    return ", ".join(told.strip().splitlines())
