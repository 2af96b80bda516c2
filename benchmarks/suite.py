"""The figures that compare.py and history.py measure, of any installation.

Each is measured from outside: through command lines, through UCI, and in one case through the native core's
Python interface. What measures is always the code of this checkout, so that a figure changes when the
measured code does and not when its benchmark was rewritten.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import cold_start
import memory
import search_speed
import service_overhead
from installation import Installation

STARTS_PER_TURN = 5
SERVICE_BATCH = 256


@dataclass(frozen=True, slots=True)
class Quantity:
    """A figure by name. what: with its unit, as tables have it. higher_is_better: or a lower value is."""

    name: str
    what: str
    higher_is_better: bool

    def gain(self, old: float, new: float) -> float:
        """How many times as good the new value is: above 1 is better, whichever way the figure counts."""
        better, worse = (new, old) if self.higher_is_better else (old, new)
        return better / worse if worse else float("inf")


Values = Mapping[str, float]
"""The value of each quantity, by its name."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A measurement that gives one quantity or several. measure: of an installation, with the seconds that
    one may take (about, and where it can choose); it raises CommandError."""

    quantities: tuple[Quantity, ...]
    measure: Callable[[Installation, float], Values]


class UnknownFigureError(Exception):
    """A name that no quantity has; the message lists those there are."""


def _search(installation: Installation, seconds: float) -> Values:
    flags, each = search_speed.IN_PROCESS, seconds / search_speed.POSITIONS
    return {"search": search_speed.search(flags, each, installation=installation)["nodes_per_second"]}


def _search_through_evaluator(installation: Installation, seconds: float) -> Values:
    flags, each = search_speed.THROUGH_EVALUATOR, seconds / search_speed.POSITIONS
    report = search_speed.search(flags, each, installation=installation)
    return {"search-evaluator": report["nodes_per_second"]}


def _search_with_network(installation: Installation, seconds: float) -> Values:
    report = search_speed.search((), seconds / search_speed.POSITIONS, installation=installation)
    return {"search-network": report["evaluations_per_second"]}


def _start(installation: Installation, seconds: float) -> Values:
    starts = [cold_start.start(installation=installation) for _ in range(STARTS_PER_TURN)]
    return {
        "uciok": 1000 * statistics.median(start.uciok for start in starts),
        "readyok": 1000 * statistics.median(start.readyok for start in starts),
        "engine-memory": statistics.median(start.engine_bytes for start in starts) / 2**20,
        "evaluator-memory": statistics.median(start.evaluator_bytes for start in starts) / 2**20,
    }


def _first_start(installation: Installation, seconds: float) -> Values:
    with tempfile.TemporaryDirectory() as empty:
        start = cold_start.start(installation=installation, cache_folder=empty)
    return {"first-readyok": 1000 * start.readyok}


def _node_memory(installation: Installation, seconds: float) -> Values:
    cache_bytes = memory.default_cache_bytes(installation)
    growth = memory.growth(memory.NODES, cache_bytes, installation=installation)
    return {"node-memory": growth.resident, "tree-memory": growth.own}


def _service(installation: Installation, seconds: float) -> Values:
    [row] = service_overhead.measure("random", [SERVICE_BATCH], seconds / 2, installation=installation)
    return {"service": row.served, "service-share": row.share}


SUITE = (
    Benchmark((Quantity("search", "nodes/s inside the process", True),), _search),
    Benchmark(
        (Quantity("search-evaluator", "nodes/s through the evaluator, random", True),),
        _search_through_evaluator,
    ),
    Benchmark(
        (Quantity("search-network", "evaluations/s of a search, shipped network", True),),
        _search_with_network,
    ),
    Benchmark(
        (
            Quantity("uciok", "ms to uciok", False),
            Quantity("readyok", "ms to readyok", False),
            Quantity("engine-memory", "MiB of the engine at readyok", False),
            Quantity("evaluator-memory", "MiB of the evaluator at readyok", False),
        ),
        _start,
    ),
    Benchmark((Quantity("first-readyok", "ms to readyok, empty caches", False),), _first_start),
    Benchmark(
        (
            Quantity("node-memory", "bytes per node, tree and cache", False),
            Quantity("tree-memory", "bytes per node, the tree's own count", False),
        ),
        _node_memory,
    ),
    Benchmark(
        (
            Quantity("service", f"positions/s through the service, random, batch {SERVICE_BATCH}", True),
            Quantity("service-share", "% of the bare backend through the service", True),
        ),
        _service,
    ),
)


def chosen(names: Iterable[str], suite: Iterable[Benchmark] = SUITE) -> list[Benchmark]:
    """The benchmarks that give the named quantities, each with those alone; all of them for no name.

    Raises UnknownFigureError.
    """
    wanted, suite = set(names), list(suite)
    known = [quantity.name for benchmark in suite for quantity in benchmark.quantities]
    if unknown := sorted(wanted.difference(known)):
        raise UnknownFigureError(f"no figure is called {', '.join(unknown)}; there are {', '.join(known)}")
    if not wanted:
        return suite
    parts = [
        Benchmark(tuple(one for one in benchmark.quantities if one.name in wanted), benchmark.measure)
        for benchmark in suite
    ]
    return [benchmark for benchmark in parts if benchmark.quantities]
