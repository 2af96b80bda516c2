"""benchmarks/revisions/turns.py: who is measured when, and what a failure leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.common.installation import Installation
from benchmarks.common.processes import CommandError
from benchmarks.common.progress import Progress
from benchmarks.revisions.suite import Benchmark, Quantity, Values
from benchmarks.revisions.turns import Measured, Spread, measure_in_turns
from tests.benchmarks.projects import SPEED, START


def installation(name: str) -> Installation:
    return Installation(name, [name], [name], [name], Path.cwd())


OLD, NEW = installation("old"), installation("new")


class Notebook:
    """Benchmarks that note whom they measure, and give the number of the measurement."""

    def __init__(self) -> None:
        self.measured: list[str] = []

    def benchmark(self, *quantities: Quantity, fails_for: str = "", lacks: str = "") -> Benchmark:
        def measure(one: Installation, seconds: float) -> Values:
            self.measured.append(one.name)
            if one.name == fails_for:
                raise CommandError("no such command")
            told = {each.name: len(self.measured) for each in quantities if each.name != lacks}
            return {each.name: told[each.name] for each in quantities}

        return Benchmark(quantities, measure)


def measure(*benchmarks: Benchmark, rounds: int = 1, warmed: list[str] | None = None) -> Measured:
    def warm_up(one: Installation) -> None:
        if warmed is not None:
            warmed.append(one.name)

    return measure_in_turns(
        [OLD, NEW], benchmarks, rounds=rounds, seconds=1, progress=Progress(), warm_up=warm_up
    )


def test_the_order_is_turned_round_from_round_to_round() -> None:
    notebook = Notebook()
    measured = measure(notebook.benchmark(SPEED), rounds=3)
    assert notebook.measured == ["old", "new", "new", "old", "old", "new"]
    assert measured.values == {"speed": [[1, 4, 5], [2, 3, 6]]}


def test_each_is_warmed_up_once_before() -> None:
    warmed: list[str] = []
    measure(Notebook().benchmark(SPEED), rounds=2, warmed=warmed)
    assert warmed == ["old", "new"]


@pytest.mark.parametrize("side", ["old", "new"])
def test_what_fails_on_one_side_is_left_out_and_not_tried_again(side: str) -> None:
    notebook = Notebook()
    measured = measure(notebook.benchmark(START, fails_for=side), notebook.benchmark(SPEED), rounds=2)
    assert measured.quantities == [SPEED]
    assert list(measured.values) == ["speed"]
    [failure] = measured.failures
    assert (failure.figures, failure.installation, failure.message) == (("start",), side, "no such command")
    assert len(notebook.measured) == {"old": 1, "new": 2}[side] + 4


def test_a_report_that_lacks_a_figure_is_a_failure() -> None:
    measured = measure(Notebook().benchmark(SPEED, START, lacks="start"))
    assert [failure.message for failure in measured.failures] == ["its output lacks 'start'"]
    assert not measured.quantities


def test_a_failure_in_a_later_round_takes_the_earlier_rounds_with_it() -> None:
    calls = 0

    def fail_later(one: Installation, seconds: float) -> Values:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise CommandError("gone")
        return {"speed": 1}

    measured = measure(Benchmark((SPEED,), fail_later), rounds=2)
    assert not measured.quantities
    assert not measured.values
    assert len(measured.failures) == 1


def test_a_spread_is_median_and_range() -> None:
    assert Spread.of([3, 1, 2, 9]) == Spread(median=2.5, low=1, high=9)
