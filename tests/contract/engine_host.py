"""A process that hosts real vLLM as a worker does, on the loop of a thread; `python -m tests.contract.engine_host`.

Takes the model from MODEL_PATH. Prints `ready` once the first token has come, and goes on for ever.
"""

from inference import parent_death

parent_death.arm_if_spawned(__name__)

import asyncio  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
import threading  # noqa: E402

from inference.engine import Generation, Sampling  # noqa: E402
from inference.vllm_engine import VllmConfig, VllmEngine  # noqa: E402


async def host() -> None:
    """Start the engine and keep it busy."""
    engine = VllmEngine(VllmConfig(os.environ["MODEL_PATH"]))
    await engine.start()
    while True:
        async for _ in engine.generate(Generation("busy", [1, 9690, 198], 1000, Sampling())):
            sys.stdout.write("ready\n")
            sys.stdout.flush()


if __name__ == "__main__":
    parent_death.remember_spawner()
    loop_thread = threading.Thread(target=lambda: asyncio.run(host()))
    loop_thread.start()
    loop_thread.join()
