"""Several installations measured in turns, so that what else the machine does falls on all of them alike."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import cold_start
from installation import Installation
from processes import CommandError
from progress import Progress
from suite import Benchmark, Quantity


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


def measure_in_turns(
    installations: Sequence[Installation],
    benchmarks: Sequence[Benchmark],
    *,
    rounds: int,
    seconds: float,
    progress: Progress,
    warm_up: Callable[[Installation], object] = lambda installation: cold_start.start(
        installation=installation
    ),
) -> Measured:
    """Measure each benchmark of each installation once in every round.

    The order of the installations is turned round from one round to the next (A B, B A, A B, …), because the
    second of two may find a warmer machine. Each is warmed up before, so that no round has a first start.
    seconds: of one measurement, where it can choose. Raises CommandError if the warming up fails.
    """
    for installation in installations:
        progress.step(f"{installation.name}: a first start, which is not measured")
        warm_up(installation)
    found: dict[str, list[list[float]]] = {}
    failures: list[Failure] = []
    running = list(benchmarks)
    for number in range(rounds):
        for benchmark in list(running):
            order = list(enumerate(installations))[:: -1 if number % 2 else 1]
            for place, installation in order:
                names = tuple(quantity.name for quantity in benchmark.quantities)
                progress.step(f"round {number + 1} of {rounds}, {installation.name}: {', '.join(names)}")
                try:
                    values = benchmark.measure(installation, seconds)
                except (CommandError, KeyError) as error:
                    told = f"its output lacks {error}" if isinstance(error, KeyError) else str(error)
                    failures.append(Failure(names, installation.name, told))
                    running.remove(benchmark)
                    for name in names:
                        found.pop(name, None)
                    break
                for name in names:
                    found.setdefault(name, [[] for _ in installations])[place].append(values[name])
    quantities = [
        quantity for benchmark in running for quantity in benchmark.quantities if quantity.name in found
    ]
    return Measured(quantities, found, failures)
