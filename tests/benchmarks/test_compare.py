"""benchmarks/revisions/compare.py: two commits built and measured, what is printed, exit codes, Ctrl-C."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from benchmarks.revisions import compare
from benchmarks.revisions.compare import Comparison, comparisons, table
from benchmarks.revisions.environments import Environments
from benchmarks.revisions.measuring import guarded
from benchmarks.revisions.revisions import Repository
from benchmarks.revisions.suite import Quantity
from benchmarks.revisions.turns import Measured
from tests.benchmarks.projects import SPEED, START, SUITE, Project, no_warm_up, program
from tests.paths import REPOSITORY


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def run(project: Project, *words: str) -> int:
    """The command on a project's repository; returns its exit code."""
    arguments = compare.parse(words)

    def work() -> int:
        with Repository(project.folder) as repository:
            folder = project.folder.parent / "environments"
            environments = Environments(repository, folder, install=project.install)
            return compare.compare(arguments, repository, environments, SUITE, warm_up=no_warm_up)

    return guarded("compare.py", work)


def test_a_commit_is_compared_with_the_working_tree(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    old = project.commit("The first", program(speed=100, start=50))
    project.commit("The second", program(speed=110, start=50))
    project.write(program(speed=150, start=100))
    assert run(project, old, "--rounds", "3") == 0
    printed = capsys.readouterr().out
    assert "The first" in printed
    rows = {line.split("  ")[0].strip(): line.split() for line in printed.splitlines()}
    assert rows["nodes/s"] == ["nodes/s", "100", "150", "1.500", "1.500–1.500", "better"]
    assert rows["ms to uciok"] == ["ms", "to", "uciok", "50.00", "100", "0.500", "0.500–0.500", "worse"]


def test_two_commits_are_compared_as_json(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    old = project.commit("The first", program(speed=100, start=50))
    new = project.commit("The second", program(speed=80, start=50))
    project.write(program(speed=1, start=1))
    assert run(project, old, new, "--rounds", "2", "--figures", "speed", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["old"]["commit"], told["new"]["commit"]) == (old, new)
    [figure] = told["figures"]
    assert (figure["name"], figure["old"], figure["new"]) == ("speed", [100, 100], [80, 80])
    assert figure["ratio"] == {"median": 0.8, "low": 0.8, "high": 0.8}
    assert told["machine"]["cores"] >= 1


@pytest.mark.parametrize(("ratio", "code"), [("0.7", 0), ("0.8", 0), ("0.9", 1)])
def test_a_ratio_below_the_bound_is_an_exit_code(
    project: Project, capsys: pytest.CaptureFixture[str], ratio: str, code: int
) -> None:
    project.commit("The first", program(speed=100, start=40))
    project.write(program(speed=200, start=50))
    assert run(project, "HEAD", "--rounds", "1", "--fail-below", ratio) == code
    complaints = capsys.readouterr().err
    assert ("start: median ratio 0.800 is below 0.9" in complaints) == bool(code)
    assert "speed: median" not in complaints


def test_a_figure_that_one_side_lacks_is_named_and_the_others_are_measured(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    old = project.commit("Without a start", "print('{\"speed\": 100}')")
    project.commit("With it", program(speed=100))
    assert run(project, old, "--rounds", "1") == 2
    printed = capsys.readouterr()
    assert f"start: not measured, since it failed for {old[:8]}" in printed.err
    assert "its output lacks 'start'" in printed.err
    assert "nodes/s" in printed.out
    assert "uciok" not in printed.out


def test_an_unknown_commit_is_an_error(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.commit("The first", program(speed=100))
    assert run(project, "nowhere") == 2
    assert "compare.py: nowhere is no commit of" in capsys.readouterr().err


def test_an_unknown_figure_is_an_error_before_anything_is_built(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.commit("The first", program(speed=100))
    assert run(project, "HEAD", "--figures", "beauty") == 2
    assert "no figure is called beauty; there are speed, start" in capsys.readouterr().err
    assert project.builds == 0


def test_a_build_that_fails_is_an_error(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    old = project.commit("The first", "compile error")
    project.commit("The second", program(speed=100))
    assert run(project, old) == 2
    assert "does not compile" in capsys.readouterr().err


def test_the_same_sources_are_said_to_be_the_same(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.commit("The first", program(speed=100))
    assert run(project, "HEAD", "--rounds", "3", "--rebuild") == 0
    printed = capsys.readouterr()
    assert "both have the same sources" in printed.err
    assert "better" not in printed.out
    assert "worse" not in printed.out
    assert project.builds == 1


@pytest.mark.parametrize("words", [["HEAD", "--rounds", "0"], ["HEAD", "--fail-below", "0"], []])
def test_wrong_arguments_are_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        compare.parse(words)
    assert refused.value.code == 2


@pytest.mark.parametrize(
    ("new", "verdict"),
    [
        ([110, 105, 101], "better"),
        ([90, 95, 99], "worse"),
        ([90, 110, 120], ""),
        ([100, 100.05, 100.02], ""),
        ([110, 120], ""),
    ],
)
def test_a_verdict_needs_three_rounds_that_agree(new: list[float], verdict: str) -> None:
    assert Comparison(SPEED, [100.0] * len(new), new).verdict == verdict


def test_the_table_fits_into_80_columns() -> None:
    long = Quantity("long", "processor ms, readyok, yes", higher_is_better=True)
    row = Comparison(long, [1_000_000.0, 1_200_000.0], [3_456_789.0, 2_345_678.0])
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(table([row] * 3, "01234567", "89abcdef+changes"))
    lines = console.export_text().splitlines()
    assert len([line for line in lines if "processor ms, readyok, yes" in line and "3.45" in line]) == 3


def test_ratios_are_those_of_the_rounds() -> None:
    measured = Measured([START], {"start": [[10, 20, 40], [10, 10, 10]]})
    [row] = comparisons(measured)
    assert (row.gains.low, row.gains.median, row.gains.high) == (1, 2, 4)


HANGING = """\
import os, signal
with open(os.environ["PIDS"], "w") as pids:
    pids.write(str(os.getpid()))
signal.pause()
"""
"""A program that says its number through a pipe and waits."""

COMPARE = """\
import sys
from pathlib import Path
from tests.benchmarks.projects import Project
from tests.benchmarks.test_compare import run

class Made(Project):
    def __init__(self, folder):
        self.folder, self._built = folder / "project", folder / "built"

sys.exit(run(Made(Path(sys.argv[1])), "HEAD"))
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_nothing_running(
    project: Project, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    project.commit("Hangs", HANGING)
    pids = tmp_path / "pids"
    os.mkfifo(pids)
    command = subprocess.Popen(
        [sys.executable, "-c", COMPARE, str(tmp_path)],
        env={**os.environ, "PIDS": str(pids), "PYTHONPATH": str(REPOSITORY)},
        stderr=subprocess.PIPE,
    )
    measured = psutil.Process(int(pids.read_text()))
    command.send_signal(number)
    command.communicate()
    assert command.returncode == code
    assert not measured.is_running()
