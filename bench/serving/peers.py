"""Other servers that can be put in: each in a virtual environment of its own, in front of the same scripted engine."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from bench.serving.bench import Bench, Target
from bench.serving.beside import Command
from bench.serving.job import Surface
from launcher.child import free_port
from launcher.places import SHARED

HOME = SHARED / "peers"
LITELLM = "litellm[proxy]==1.108.7"
INSTALLED_WITHIN_S = 600
READY_WITHIN_S = 120
KEY = "sk-bench"


class PeerMissing(Exception):
    """It cannot be installed here; the text says why, in one line."""


async def litellm(bench: Bench) -> Target:
    """LiteLLM's proxy, one process. Raises `PeerMissing`, `NotServing`."""
    venv = await asyncio.to_thread(_environment, "litellm", LITELLM)
    engine = await bench.bare_on(bench.cores.load)
    port = free_port()
    config = bench.folder / "litellm.json"  # YAML holds JSON
    config.write_text(json.dumps(_litellm_config(engine.port)))
    arguments = [str(venv / "bin/litellm"), "--config", str(config), "--port", str(port), "--num_workers", "1"]
    environ = {"PATH": f"{venv / 'bin'}:{os.environ['PATH']}", "HOME": str(bench.folder), "LITELLM_LOG": "ERROR"}
    command = Command("litellm", arguments, port, bench.cores.server, environ, READY_WITHIN_S)
    pid = await bench.serve(command)
    return Target("litellm", Surface.OPENAI, port, {"litellm": pid}, KEY)


def _litellm_config(port: int) -> Mapping[str, object]:
    params = {"model": "openai/default", "api_base": f"http://127.0.0.1:{port}/v1", "api_key": "none"}
    return {
        "model_list": [{"model_name": "default", "litellm_params": params}],
        "general_settings": {"master_key": KEY},
        "litellm_settings": {"telemetry": False},
    }


PEERS: dict[str, Callable[[Bench], Awaitable[Target]]] = {"litellm": litellm}


async def joined(bench: Bench, name: str) -> Target:
    """A peer that serves. Raises `PeerMissing`, `NotServing`."""
    bench.say(f"starting {name}")
    return await PEERS[name](bench)


def _environment(name: str, requirement: str) -> Path:
    """A virtual environment with just that, made once. Raises `PeerMissing`."""
    venv = HOME / name
    stamp = venv / "installed"
    if not stamp.exists() or stamp.read_text() != requirement:
        _run(sys.executable, "-m", "venv", "--clear", str(venv))
        _run(str(venv / "bin/python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", requirement)
        stamp.write_text(requirement)
    return venv


def _run(*command: str) -> None:
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=INSTALLED_WITHIN_S, check=False)
    except subprocess.TimeoutExpired as late:
        raise PeerMissing(f"installing it took longer than {INSTALLED_WITHIN_S} s") from late
    if ran.returncode:
        said = ran.stderr.strip().splitlines() or ["no reason given"]
        raise PeerMissing(f"it cannot be installed: {said[-1]}")
