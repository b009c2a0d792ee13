"""Wait until the product answers, then say where to click."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher.progress import Step

LOOK_EVERY_S = 0.25


@dataclass(frozen=True)
class Demo:
    """The demo account; its password is known only when it was just made."""

    user: str
    password: str | None


def wait(step: Step, address: str, worker_files: Sequence[Path]) -> None:
    """Return once the web tier answers and every worker has touched its file."""
    waits: dict[str, Callable[[], bool]] = {"web tier": lambda: _answers(address)}
    waits |= {f"worker {path.name} to load the model": path.exists for path in worker_files}
    while waits:
        waits = {what: is_ready for what, is_ready in waits.items() if not is_ready()}
        if waits:
            step.at("waiting for " + ", ".join(waits))
            time.sleep(LOOK_EVERY_S)


def _answers(address: str) -> bool:
    try:
        urllib.request.build_opener(urllib.request.ProxyHandler({}), _StayHere).open(address, timeout=5).close()
    except urllib.error.HTTPError:
        return True  # it speaks HTTP, whatever it says
    except OSError:
        return False
    return True


class _StayHere(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer too."""

    def redirect_request(self, *_: object) -> None:
        """Do not follow."""


def welcome(address: str, demo: Demo) -> str:
    """What to do next."""
    password = f"{demo.password}   (shown this once)" if demo.password else "as printed at the first start"
    return f"""
  Palaver is ready:  {address}/
  Account:           {demo.user}
  Password:          {password}
  Forgotten?         .venv/bin/python manage.py changepassword {demo.user}
  API key:           .venv/bin/python manage.py apikey {demo.user}
  Stop:              Ctrl-C
"""
