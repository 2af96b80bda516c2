# SPDX-License-Identifier: GPL-3.0-or-later
"""The figures that compare.py measures for any installation.

Each is measured from outside: through command lines, UCI, and once the native core's Python interface. The
measuring code is always this checkout's. So figures change with the measured code only, not when a benchmark
is rewritten.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from benchmarks.common.installation import Installation
from benchmarks.common.processes import processor_seconds
from benchmarks.engine import clock, cold_start
from benchmarks.search import memory, search_speed
from benchmarks.service import service_overhead

STARTS_PER_TURN = 5
SERVICE_BATCH = 256
NODES_PER_SECOND = 500_000
"""Approximate speed of an in-process search."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A named figure. what: description with unit for tables. higher_is_better: False if lower is better."""

    name: str
    what: str
    higher_is_better: bool

    def gain(self, old: float, new: float) -> float:
        """Return the ratio of improvement: above 1 is better, for both directions."""
        better, worse = (new, old) if self.higher_is_better else (old, new)
        return better / worse if worse else float("inf")


Values = Mapping[str, float]
"""Value of each quantity by name."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A measurement of one or more quantities. measure: called with an installation and its approximate
    seconds, if they can be chosen; raises CommandError."""

    quantities: tuple[Quantity, ...]
    measure: Callable[[Installation, float], Values]


class UnknownFigureError(Exception):
    """An unknown quantity. The message lists the known ones."""


def _search(installation: Installation, seconds: float) -> Values:
    flags, each = search_speed.IN_PROCESS, seconds / search_speed.POSITIONS
    return {"search": search_speed.search(flags, each, installation=installation)["nodes_per_second"]}


def _search_processor_time(installation: Installation, seconds: float) -> Values:
    """Search as many nodes as take these seconds on an idle machine. Includes the process's start."""
    nodes = max(1, round(seconds * NODES_PER_SECOND / search_speed.POSITIONS))
    command = [
        *installation.engine,
        "bench",
        "--in-process",
        "--batch",
        "256",
        "--nodes",
        str(nodes),
        "--json",
    ]
    before = processor_seconds()
    report = installation.json_of(command)
    return {"search-cpu": report["nodes"] / (processor_seconds() - before)}


def _search_through_evaluator(installation: Installation, seconds: float) -> Values:
    flags, each = search_speed.THROUGH_EVALUATOR, seconds / search_speed.POSITIONS
    report = search_speed.search(flags, each, installation=installation)
    return {"search-evaluator": report["nodes_per_second"]}


def _search_with_network(installation: Installation, seconds: float) -> Values:
    report = search_speed.search((), seconds / search_speed.POSITIONS, installation=installation)
    return {"search-network": report["evaluations_per_second"]}


def _clock(installation: Installation, seconds: float) -> Values:
    played = clock.play(installation=installation, seconds=seconds)
    return {"clock": played.nodes_per_ms, "clock-wait": played.wait_ms}


def _uciok_processor_time(installation: Installation, seconds: float) -> Values:
    """Measure an engine that gets `quit` immediately after `uci`."""
    spent = []
    for _ in range(STARTS_PER_TURN):
        before = processor_seconds()
        installation.output_of(installation.engine, given="uci\nquit\n")
        spent.append(1000 * (processor_seconds() - before))
    return {"uciok-cpu": statistics.median(spent)}


def _start(installation: Installation, seconds: float) -> Values:
    before = processor_seconds()
    starts = [cold_start.start(installation=installation) for _ in range(STARTS_PER_TURN)]
    spent = processor_seconds() - before
    return {
        "uciok": 1000 * statistics.median(start.uciok for start in starts),
        "readyok": 1000 * statistics.median(start.readyok for start in starts),
        "readyok-cpu": 1000 * spent / STARTS_PER_TURN,
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
    Benchmark((Quantity("search", "nodes/s in process", True),), _search),
    Benchmark((Quantity("search-cpu", "nodes/processor second", True),), _search_processor_time),
    Benchmark((Quantity("search-evaluator", "nodes/s, random backend", True),), _search_through_evaluator),
    Benchmark((Quantity("search-network", "evaluations/s, network", True),), _search_with_network),
    Benchmark(
        (
            Quantity("clock", "nodes/ms, moves under a clock", True),
            Quantity("clock-wait", "ms of a move without search", False),
        ),
        _clock,
    ),
    Benchmark((Quantity("uciok-cpu", "processor ms, uciok", False),), _uciok_processor_time),
    Benchmark(
        (
            Quantity("uciok", "ms to uciok", False),
            Quantity("readyok", "ms to readyok", False),
            Quantity("readyok-cpu", "processor ms, readyok", False),
            Quantity("engine-memory", "MiB, engine", False),
            Quantity("evaluator-memory", "MiB, evaluator", False),
        ),
        _start,
    ),
    Benchmark((Quantity("first-readyok", "ms to readyok, no caches", False),), _first_start),
    Benchmark(
        (
            Quantity("node-memory", "bytes/node with cache", False),
            Quantity("tree-memory", "bytes/node, tree", False),
        ),
        _node_memory,
    ),
    Benchmark(
        (
            Quantity("service", "positions/s, service", True),
            Quantity("service-share", "service, % of backend", True),
        ),
        _service,
    ),
)
"""Names with `cpu` measure CPU time, which other work on the machine changes less than wall time."""


def chosen(names: Iterable[str], suite: Iterable[Benchmark] = SUITE) -> list[Benchmark]:
    """Return the benchmarks restricted to the named quantities; all of them without names.

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
