# SPDX-License-Identifier: GPL-3.0-or-later
"""Several installations measured in turns, so that what else the machine does falls on all of them alike."""

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
    """A benchmark that could not be measured of one installation, and is not tried again."""

    figures: tuple[str, ...]
    installation: str
    message: str


@dataclass(slots=True)
class Measured:
    """values: by quantity, for each installation its value in each round. Only quantities that were measured
    of all installations are there; the others are in failures."""

    quantities: list[Quantity]
    values: dict[str, list[list[float]]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Spread:
    """Of several values."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


def first_start(installation: Installation) -> object:
    """What fills the caches of an installation, and shows that it works. Raises CommandError."""
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
    """Measure each benchmark of each installation once in every round.

    The order of the installations is turned round from one round to the next (A B, B A, A B, …), because the
    second of two may find a warmer machine. Each is warmed up before, so that no round has a first start.
    seconds: of one measurement, where it can choose. Raises CommandError if the warming up fails.
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
