"""benchmarks/revisions/suite.py: which figures there are, and that each can be measured of this checkout."""

from __future__ import annotations

import re

import pytest

from benchmarks.common.installation import CHECKOUT, Installation
from benchmarks.common.processes import CommandError
from benchmarks.engine import cold_start
from benchmarks.revisions import suite
from benchmarks.revisions.suite import SUITE, Quantity, UnknownFigureError, chosen
from benchmarks.search import memory
from tests.benchmarks.projects import SPEED, START
from tests.paths import REPOSITORY

BENCHMARKS = REPOSITORY / "benchmarks"
QUANTITIES = [quantity for benchmark in SUITE for quantity in benchmark.quantities]


def test_a_gain_is_above_one_where_it_is_better() -> None:
    assert SPEED.gain(100, 150) == 1.5
    assert START.gain(100, 50) == 2
    assert START.gain(50, 100) == 0.5


def test_no_name_stands_for_all_figures() -> None:
    assert chosen([]) == list(SUITE)


def test_of_a_benchmark_with_several_figures_the_named_ones_are_chosen() -> None:
    picked = chosen(["uciok", "search"])
    assert [[quantity.name for quantity in one.quantities] for one in picked] == [["search"], ["uciok"]]


def test_an_unknown_figure_is_an_error_that_lists_those_there_are() -> None:
    with pytest.raises(UnknownFigureError, match=r"no figure is called speed; there are search, .*uciok"):
        chosen(["uciok", "speed"])


def test_names_are_unique() -> None:
    assert len({quantity.name for quantity in QUANTITIES}) == len(QUANTITIES)


def test_the_readme_has_each_figure_and_each_command() -> None:
    readme = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"`([^`]+)`", " ".join(re.findall(r"^\| (`.*?) \|", readme, re.MULTILINE)))
    programs = [path for path in BENCHMARKS.glob("*/*.py") if "__main__" in path.read_text(encoding="utf-8")]
    commands = {f"{path.parent.name}.{path.stem}" for path in programs}
    # search.memory, latency.call_latency and service.soak run them.
    commands -= {"search.tree_growth", "latency.timed_evaluator", "service.soak_clients"}
    figures = [quantity.name for quantity in QUANTITIES]
    assert sorted(named) == sorted([*commands, *figures])


@pytest.mark.parametrize("quantity", QUANTITIES, ids=[quantity.name for quantity in QUANTITIES])
def test_descriptions_fit_into_a_line_of_the_table(quantity: Quantity) -> None:
    assert len(quantity.what) <= 25


@pytest.mark.parametrize("measured", SUITE, ids=[benchmark.quantities[0].name for benchmark in SUITE])
def test_each_figure_can_be_measured_of_this_checkout(
    measured: suite.Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "STARTS_PER_TURN", 1)
    monkeypatch.setattr(memory, "NODES", 2000)
    values = measured.measure(CHECKOUT, 0.1)
    assert set(values) == {quantity.name for quantity in measured.quantities}
    assert all(value > 0 for value in values.values())


def test_an_engine_that_ends_before_readyok_is_an_error() -> None:
    command = [*CHECKOUT.python, "-c", "import sys; sys.exit('no network')"]
    broken = Installation("broken", command, command, command, CHECKOUT.folder)
    with pytest.raises(CommandError, match=r"(?s)exit code 1:\nno network\nbefore it said readyok"):
        cold_start.start(installation=broken)


def test_an_engine_without_a_cache_option_is_an_error() -> None:
    command = [*CHECKOUT.python, "-c", "print('uciok')"]
    other = Installation("other", command, command, command, CHECKOUT.folder)
    with pytest.raises(CommandError, match="has no UCI option Hash"):
        memory.default_cache_bytes(other)


def test_output_that_is_no_json_is_an_error() -> None:
    with pytest.raises(CommandError, match=r"printed no JSON:\nnodes"):
        CHECKOUT.json_of([*CHECKOUT.python, "-c", "print('nodes 5')"])
