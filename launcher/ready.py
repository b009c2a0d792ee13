"""Wait until the product answers, then say where to click."""

from __future__ import annotations

import shlex
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher.places import SHARED, STATE
from launcher.progress import Step

LOOK_EVERY_S = 0.25
ENTRANCE = "/"


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
        urllib.request.build_opener(urllib.request.ProxyHandler({}), _StayHere).open(
            address + ENTRANCE, timeout=5
        ).close()
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
    # manage.py finds the settings of this run by itself, unless they were put elsewhere.
    elsewhere = "" if STATE == SHARED else f"PALAVER_STATE={shlex.quote(str(STATE))} "
    manage = f"{elsewhere}.venv/bin/python manage.py"
    return f"""
  Palaver is ready:  {address}{ENTRANCE}
  Account:           {demo.user}
  Password:          {password}
  Forgotten?         {manage} changepassword {demo.user}
  API key:           {manage} apikey {demo.user}
  Tiers, accounts:   {address}/admin/
  Stop:              Ctrl-C
"""
