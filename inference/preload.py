"""Torch's OpenMP runtime for vLLM to preload, in a checkout whose path the dynamic linker would take apart."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

VARIABLE = "LD_PRELOAD"
SEPARATORS = re.compile(r"[\s:]")


@contextmanager
def readable_openmp() -> Iterator[None]:
    """Preload the runtime through a link while engine processes start, where its own path holds a blank or a colon.

    vLLM preloads it by its path, which the linker then ignores piece by piece: one core would do all the work.
    """
    runtime = _openmp_runtime()
    if runtime is None or not SEPARATORS.search(str(runtime)) or "libgomp" in os.environ.get(VARIABLE, ""):
        yield
        return
    before = os.environ.get(VARIABLE)
    with tempfile.TemporaryDirectory(prefix="palaver-") as folder:
        link = Path(folder, runtime.name)
        link.symlink_to(runtime)
        os.environ[VARIABLE] = ":".join(filter(None, (before, str(link))))
        try:
            yield
        finally:
            os.environ.pop(VARIABLE)
            if before is not None:
                os.environ[VARIABLE] = before


def _openmp_runtime() -> Path | None:
    """Where torch's wheel keeps it; None in a build without."""
    torch = find_spec("torch")
    if torch is None or torch.origin is None:
        return None
    package = Path(torch.origin).parent
    found = [
        file for folder in (package.parent / "torch.libs", package / "lib") for file in folder.glob("libgomp*.so*")
    ]
    return found[0] if found else None
