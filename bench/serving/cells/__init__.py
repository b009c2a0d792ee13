"""The cells by name: each an async function of a `Bench` that returns its figures. A new one is entered here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from bench.serving.bench import Bench
from bench.serving.cells.costs import costs
from bench.serving.cells.engine import engine
from bench.serving.cells.footprint import footprint
from bench.serving.cells.growth import growth
from bench.serving.cells.streams import streams
from bench.serving.cells.submit import submit
from bench.serving.cells.sustain import sustain
from bench.serving.cells.tier import tier
from bench.serving.cells.ttft import ttft
from bench.serving.figures import Figure

Cell = Callable[[Bench], Awaitable[Sequence[Figure]]]

# In an order in which the product is started anew as seldom as can be.
CELLS: Mapping[str, Cell] = {
    "ttft": ttft,
    "sustain": sustain,
    "footprint": footprint,
    "submit": submit,
    "streams": streams,
    "tier": tier,
    "costs": costs,
    "growth": growth,
    "engine": engine,
}
