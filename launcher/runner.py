"""Process B: make the virtual environment, move into it, and there run, test, check, soak, bench or loadtest."""

from __future__ import annotations

import os
import signal
import sys

from launcher import kernel, stopping
from launcher.guard import GUARD_PID
from launcher.places import STEPS, VENV, VENV_PYTHON
from launcher.problems import SetupProblem, told_in_one_line


def main(argv: list[str]) -> None:
    """Carry out one command; leaves by `SystemExit` with its exit status."""
    kernel.adopt_orphans()
    kernel.signal_at_parent_death(signal.SIGTERM)
    if os.environ.get(GUARD_PID) != str(os.getppid()):
        sys.exit("palaver: the runner is started by its guard. Use: make run")
    with told_in_one_line(), stopping.orderly():
        command = _command(argv)
        if _in_our_venv():
            _carry_out(command)
        else:
            _move_into_venv(command)
    if not _in_our_venv():
        # Same process: the kernel keeps both promises of above across exec.
        os.execv(VENV_PYTHON, [str(VENV_PYTHON), "-m", "launcher.runner", command])


def _command(argv: list[str]) -> str:
    if len(argv) != 1 or argv[0] not in STEPS:
        raise SetupProblem(
            f"there is no command {' '.join(argv)!r}", f"Use one of: {', '.join(f'make {name}' for name in STEPS)}"
        )
    return argv[0]


def _in_our_venv() -> bool:
    return os.path.realpath(sys.prefix) == os.path.realpath(VENV)


def _move_into_venv(command: str) -> None:
    from launcher import install

    if command == "run":
        _refuse_early()
    install.ensure(dev=command != "run", steps=STEPS[command])


def _refuse_early() -> None:
    """What cannot work is said before minutes are spent on packages. Raises `SetupProblem`."""
    from launcher import model
    from launcher.options import Options

    options = Options.read()
    options.check_port_is_free()
    if options.model:
        model.check_named(options.model)


def _carry_out(command: str) -> None:
    if command == "run":
        from launcher import run

        run.main()
    elif command == "test":
        from launcher import testing

        testing.main()
    elif command == "soak":
        from launcher import soaking

        soaking.main()
    elif command == "bench":
        from launcher import benching

        benching.main()
    elif command == "loadtest":
        from launcher import loadtesting

        loadtesting.main()
    else:
        from launcher import checks

        checks.main()


if __name__ == "__main__":
    main(sys.argv[1:])
