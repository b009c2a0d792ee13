"""A parent, its spawned child and that one's own child; run as `python -m tests.inference.mortal_family HOW FOLDER`.

HOW says who arms: `main` (when the main module is re-imported), `plugin` (in the child's target), or `nobody`. Each
spawned process writes its pid to `<generation>.pid`, and arms once `<generation>.go` is there.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from time import monotonic, sleep

LIFETIME_S = 60  # nobody outlives a test by more, whatever fails


def report_and_wait(generation: str, folder: Path) -> None:
    """Say that we are here, and stand still until we may arm."""
    draft = folder / f"{generation}.draft"
    draft.write_text(str(os.getpid()))
    draft.rename(folder / f"{generation}.pid")
    deadline = monotonic() + LIFETIME_S
    while not (folder / f"{generation}.go").exists():
        if monotonic() > deadline:
            sys.exit(1)
        sleep(0.01)


HOW, FOLDER = sys.argv[1], Path(sys.argv[2])
if __name__ == "__mp_main__" and HOW == "main":
    report_and_wait("grandchild" if (FOLDER / "child.pid").exists() else "child", FOLDER)

from inference import parent_death  # noqa: E402

if HOW == "main":
    parent_death.arm_if_spawned(__name__)

import multiprocessing  # noqa: E402


def live(generation: str) -> None:
    """What a spawned process does: arm if the plugin is to, have a child in its turn, and stay."""
    if HOW != "main":
        report_and_wait(generation, FOLDER)
    if HOW == "plugin":
        parent_death.arm_engine_core()
    (FOLDER / f"{generation}.armed").touch()
    if generation == "child" and HOW != "nobody":
        bear("grandchild")
    sleep(LIFETIME_S)


def bear(generation: str) -> None:
    """Spawn the next generation."""
    # Not daemonic: multiprocessing must not be the one that ends it.
    multiprocessing.get_context("spawn").Process(target=live, args=(generation,)).start()


if __name__ == "__main__":
    parent_death.remember_spawner()
    parent_death.arm_engine_core()  # as vLLM does in the parent too, where it must do nothing
    bear("child")
    sleep(LIFETIME_S)
