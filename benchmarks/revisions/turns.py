# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures several installations alternately, so that other work on the machine affects all alike."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.common.installation import Installation
from benchmarks.common.processes import CommandError
from benchmarks.common.progress import Progress
from benchmarks.engine import cold_start
from benchmarks.revisions.suite import Benchmark, Quantity, Values


@dataclass(frozen=True, slots=True)
class Failure:
    """A benchmark that failed for one installation, and is not retried."""

    figures: tuple[str, ...]
    installation: str
    message: str


@dataclass(slots=True)
class Measured:
    """values: by quantity, for each installation its value in each round. Only quantities measured for all
    installations are included; the others are in failures."""

    quantities: list[Quantity]
    values: dict[str, list[list[float]]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and range of several values."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


def first_start(installation: Installation) -> object:
    """Fill an installation's caches and check that it works. Raises CommandError."""
    return cold_start.start(installation=installation)


def measure_in_turns(
    installations: Sequence[Installation],
    benchmarks: Sequence[Benchmark],
    *,
    rounds: int,
    seconds: float,
    progress: Progress,
    warm_up: Callable[[Installation], object],
) -> Measured:
    """Measure each benchmark for each installation once in every round.

    The order of installations alternates (A B, B A, A B, …), because the second may find a warmer machine.
    Each is warmed up before, so that no round has a first start.
    seconds: of one measurement, if it can be chosen. Raises CommandError if the warm-up fails.
    """
    for installation in installations:
        progress.step(f"{installation.name}: a first start, which is not measured")
        warm_up(installation)
    measured = Measured([])
    running = list(benchmarks)
    for number in range(rounds):
        order = list(range(len(installations)))[:: -1 if number % 2 else 1]
        for benchmark in list(running):
            names = [quantity.name for quantity in benchmark.quantities]
            for place in order:
                name = installations[place].name
                progress.step(f"round {number + 1} of {rounds}, {name}: {', '.join(names)}")
                found = _measure(benchmark, installations[place], seconds)
                if isinstance(found, Failure):
                    measured.failures.append(found)
                    running.remove(benchmark)
                    break
                for one in names:
                    measured.values.setdefault(one, [[] for _ in installations])[place].append(found[one])
    measured.quantities = [quantity for benchmark in running for quantity in benchmark.quantities]
    measured.values = {quantity.name: measured.values[quantity.name] for quantity in measured.quantities}
    return measured


def _measure(benchmark: Benchmark, installation: Installation, seconds: float) -> Values | Failure:
    try:
        return benchmark.measure(installation, seconds)
    except CommandError as error:
        message = str(error)
    except KeyError as error:
        message = f"its output lacks {error}"
    return Failure(tuple(quantity.name for quantity in benchmark.quantities), installation.name, message)
