"""Die with the parent: no engine process outlives the worker that spawned it, not even through kill -9.

Linux kills a process when the *thread* that spawned it ends, once the process has asked for that: the spawner must keep
that thread alive. Asking comes too late when the parent is dead already, hence the look at it afterwards.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal as signals

SPAWNER_PID_ENV = "PALAVER_SPAWNER_PID"
SPAWNED_MAIN = "__mp_main__"  # the name under which multiprocessing re-imports the main module in a spawned process
PR_SET_PDEATHSIG = 1
PARENT_GONE = 1


def arm(signal: signals.Signals = signals.SIGKILL) -> None:
    """Ask the kernel to send us `signal` when the thread that spawned us ends. Raises `OSError`."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, int(signal), 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def arm_engine_core() -> None:
    """Entry point in `vllm.general_plugins`: arm a process that multiprocessing spawned, and only such a one."""
    parent = multiprocessing.parent_process()
    if parent is None:  # vLLM loads its plugins in the Celery process too
        return
    _arm_under(parent.pid)


def remember_spawner(env_name: str = SPAWNER_PID_ENV) -> None:
    """Leave our pid in the environment, for the processes that we are about to spawn."""
    os.environ[env_name] = str(os.getpid())


def arm_if_spawned(module_name: str, env_name: str = SPAWNER_PID_ENV) -> None:
    """Arm when multiprocessing re-imports our main module; call it with `__name__`, before any other import.

    EngineCore shakes hands with its parent before it loads plugins, for minutes if that is dead: this comes first.
    """
    if module_name != SPAWNED_MAIN or env_name not in os.environ:
        return
    _arm_under(int(os.environ[env_name]))
    remember_spawner(env_name)  # EngineCore spawns workers in its turn, and they re-import this module too


def _arm_under(parent_pid: int | None) -> None:
    # Ctrl-C at a terminal, and process managers, signal whole groups: an engine that heard of it would leave its worker
    # with runs that are to be finished first.
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    arm()
    if os.getppid() != parent_pid:
        os._exit(PARENT_GONE)
