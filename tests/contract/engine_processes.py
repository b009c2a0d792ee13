"""The processes that an engine consists of, seen from outside."""

from __future__ import annotations

import re

import psutil

ENGINE_PROCESS = re.compile("spawn_main|VLLM::")


def spawned_by(parent: psutil.Process) -> list[psutil.Process]:
    """Engine processes, named as multiprocessing spawns them or as they call themselves later; no passing `lscpu`."""
    alive = [child for child in parent.children() if not is_gone(child)]
    return [child for child in alive if ENGINE_PROCESS.search(" ".join(child.cmdline()))]


def is_gone(process: psutil.Process) -> bool:
    """Ended; an orphan that nobody reaps is a zombie."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
