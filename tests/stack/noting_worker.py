"""A worker that notes what it asks of vLLM: a JSON object a line, in the file that `ENGINE_NOTES` names."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import AsyncGenerator
from pathlib import Path

from inference import parent_death

# vLLM's processes import this module as their main one, as they do inference.worker.
parent_death.arm_if_spawned(__name__)


def note_requests() -> None:
    """From here on."""
    from inference.engine import Generation, Step
    from inference.vllm_engine import VllmEngine

    generate = VllmEngine.generate

    def note(generation: Generation) -> None:
        with Path(os.environ["ENGINE_NOTES"]).open("a") as notes:
            asked = {"id": generation.request_id, "prompt_ids": list(generation.prompt_ids)}
            notes.write(json.dumps(asked | {"cap": generation.max_output_tokens}) + "\n")

    async def noting(engine: VllmEngine, generation: Generation) -> AsyncGenerator[Step, None]:
        note(generation)
        async for step in generate(engine, generation):
            yield step

    VllmEngine.generate = noting  # type: ignore[assignment,method-assign]


if __name__ == "__main__":
    from inference import worker

    note_requests()
    code = worker.main()
    logging.shutdown()
    os._exit(code)
