"""`python -m bench.serving.pinned CORE MODULE ARGUMENTS`: run a module on one core, with all that it starts."""

from __future__ import annotations

import runpy
import sys

from bench.serving.cores import staying_on


def main() -> None:
    """Move there, then become the module."""
    _, core, module, *arguments = sys.argv
    staying_on(int(core))()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
