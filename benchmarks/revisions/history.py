# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures over time: measure the working tree or commits, append the figures to a file, list and plot them.

    python -m benchmarks.revisions.history [COMMIT …] [--figures a,b,…] [--rounds N]
    python -m benchmarks.revisions.history --list
    python -m benchmarks.revisions.history --plot FILE.png

Each revision is built as compare.py does; several are measured in turns. The file has a JSON object on each
line: the machine, the commit, and of each figure its median and range. Figures of one machine say nothing
about another, so the file lies in the user's data folder and not among the sources; --file names another, for
instance one that is kept in a repository.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import platformdirs
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.common.command_line import FAILED
from benchmarks.common.figures import number
from benchmarks.common.installation import REPOSITORY, Installation
from benchmarks.common.progress import Progress
from benchmarks.revisions.environments import Environments
from benchmarks.revisions.machine import Machine, this_machine
from benchmarks.revisions.measuring import add_measuring_arguments, figure_names, guarded, show_failures
from benchmarks.revisions.revisions import Repository, Revision
from benchmarks.revisions.suite import SUITE, Benchmark, chosen
from benchmarks.revisions.turns import Measured, Spread, first_start, measure_in_turns

COLUMNS = 4
"""Runs in the table of a list, in 80 columns."""


@dataclass(frozen=True, slots=True)
class Value:
    """A figure of a run. what: with its unit. median, low, high: over the rounds."""

    what: str
    higher_is_better: bool
    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Run:
    """One revision measured once. measured: when, in ISO 8601. figures: by the name of the quantity."""

    measured: str
    machine: Machine
    revision: Revision
    rounds: int
    figures: dict[str, Value]

    @classmethod
    def from_json(cls, line: str) -> Run:
        """Raises ValueError, KeyError or TypeError for a line that is no run."""
        told: dict[str, Any] = json.loads(line)
        return cls(
            told["measured"],
            Machine(**told["machine"]),
            Revision(**told["revision"]),
            told["rounds"],
            {name: Value(**value) for name, value in told["figures"].items()},
        )


def default_file() -> Path:
    return Path(platformdirs.user_data_dir("wavefront", False)) / "benchmarks.jsonl"


def append(file: Path, runs: Sequence[Run]) -> None:
    """Append runs to a file, which is made if need be."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a+b") as lines:
        # A truncated line, as after a full disk, ends here and spoils no other.
        if lines.tell():
            lines.seek(-1, 2)
            if lines.read(1) != b"\n":
                lines.write(b"\n")
        lines.write("".join(f"{json.dumps(asdict(run))}\n" for run in runs).encode())


def read(file: Path) -> list[Run]:
    """All runs of a file, in its order. Lines that are no runs are named on stderr and left out."""
    runs = []
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.exists() else []
    for place, line in enumerate(lines, 1):
        try:
            runs.append(Run.from_json(line))
        except (ValueError, KeyError, TypeError):
            print(f"{file}, line {place}: not a run, left out", file=sys.stderr)
    return runs


def runs_of(measured: Measured, revisions: Sequence[Revision], rounds: int) -> list[Run]:
    """One run for each revision, of all that could be measured."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    machine = this_machine()
    runs = []
    for place, revision in enumerate(revisions):
        figures = {
            quantity.name: Value(
                quantity.what,
                quantity.higher_is_better,
                **asdict(Spread.of(measured.values[quantity.name][place])),
            )
            for quantity in measured.quantities
        }
        runs.append(Run(now, machine, revision, rounds, figures))
    return runs


def show(runs: Sequence[Run], names: Sequence[str]) -> None:
    """Print the runs of each machine, and a table with the medians of the last ones.

    names: the figures wanted; all for none.
    """
    console = Console()

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    for machine, its_runs in by_machine(runs).items():
        say(str(machine))
        for run in its_runs:
            say(f"  {run.measured[:16].replace('T', ' ')}  {run.revision.name}  {run.revision.subject}")
        last = its_runs[-COLUMNS:]
        whats = {name: value.what for run in last for name, value in run.figures.items()}
        made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        made.add_column("")
        for run in last:
            made.add_column(run.revision.name, justify="right")
        for name, what in whats.items():
            if not names or name in names:
                medians = [run.figures[name].median if name in run.figures else None for run in last]
                made.add_row(what, *("" if one is None else number(one) for one in medians))
        console.print(made)


def by_machine(runs: Sequence[Run]) -> dict[Machine, list[Run]]:
    """Runs of the same processor, cores, system and Python, which can be compared."""
    found: dict[Machine, list[Run]] = {}
    for run in runs:
        found.setdefault(run.machine, []).append(run)
    return found


def plot(runs: Sequence[Run], names: Sequence[str], file: Path) -> None:
    """Draw a panel for each figure: over the commits, in the order of their dates, a line for each machine.

    Raises ImportError without matplotlib, and ValueError if no run has such a figure.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    whats = {name: one for run in runs for name, one in run.figures.items() if not names or name in names}
    if not whats:
        raise ValueError("none of the runs has these figures")
    in_order = sorted(runs, key=lambda run: run.revision.date)
    commits = list(dict.fromkeys(run.revision.name for run in in_order))
    columns = min(3, len(whats))
    rows = -(-len(whats) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(5 * columns, 3 * rows), squeeze=False)
    for panel, (name, one) in zip(axes.flat, whats.items(), strict=False):
        for machine, its_runs in by_machine(in_order).items():
            places = [commits.index(run.revision.name) for run in its_runs if name in run.figures]
            values = [run.figures[name] for run in its_runs if name in run.figures]
            below = [value.median - value.low for value in values]
            above = [value.high - value.median for value in values]
            medians = [value.median for value in values]
            label = f"{machine.processor}, {machine.cores} cores"
            panel.errorbar(places, medians, yerr=[below, above], marker="o", capsize=3, label=label)
        panel.set_title(f"{one.what} ({'more' if one.higher_is_better else 'less'} is better)", fontsize=9)
        panel.set_xticks(range(len(commits)), commits, rotation=30, ha="right", fontsize=7)
        panel.set_ylim(bottom=0)
    for panel in list(axes.flat)[len(whats) :]:
        panel.remove()
    axes.flat[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(file)
    pyplot.close(figure)


def record(
    arguments: argparse.Namespace,
    repository: Repository,
    environments: Environments,
    suite: Sequence[Benchmark] = SUITE,
    warm_up: Callable[[Installation], object] = first_start,
) -> int:
    """Build, measure, append and print. Returns the exit code."""
    benchmarks = chosen(figure_names(arguments), suite)
    revisions = [repository.commit(text) for text in arguments.commits] or [repository.working_tree()]
    with Progress() as progress:
        built = [environments.get(one, progress, rebuild=arguments.rebuild) for one in revisions]
        measured = measure_in_turns(
            [environment.installation for environment in built],
            benchmarks,
            rounds=arguments.rounds,
            seconds=arguments.seconds,
            progress=progress,
            warm_up=warm_up,
        )
    environments.remove_old()
    runs = runs_of(measured, revisions, arguments.rounds)
    if measured.quantities:
        append(arguments.file, runs)
        show(runs, ())
        print(f"appended to {arguments.file}")
    show_failures(measured.failures)
    return FAILED if measured.failures else 0


def show_recorded(arguments: argparse.Namespace) -> int:
    """List or plot what the file has. Returns the exit code."""
    names = figure_names(arguments)
    chosen(names)
    runs = read(arguments.file)
    if not runs:
        print(
            f"history.py: {arguments.file} has no runs: without --list and --plot, one is measured",
            file=sys.stderr,
        )
        return FAILED
    if arguments.list:
        show(runs, names)
    if arguments.plot:
        try:
            plot(runs, names, arguments.plot)
        except ImportError as error:
            print(
                f"history.py: --plot needs matplotlib: pip install '.[plot]' brings it ({error})",
                file=sys.stderr,
            )
            return FAILED
        except (OSError, ValueError) as error:  # not writable, or an ending that it does not know
            print(f"history.py: {arguments.plot}: {error}", file=sys.stderr)
            return FAILED
        print(f"{len(runs)} runs plotted in {arguments.plot}")
    return 0


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line; words are those of the process if None."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commits", metavar="COMMIT", nargs="*", help="default: the working tree")
    add_measuring_arguments(parser)
    parser.add_argument(
        "--file", type=Path, default=default_file(), metavar="FILE.jsonl", help=f"default: {default_file()}"
    )
    parser.add_argument("--list", action="store_true", help="print the runs of the file; measure nothing")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="plot them; measure nothing")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    arguments = parse(words)

    def run() -> int:
        if arguments.list or arguments.plot:
            return show_recorded(arguments)
        with Repository(REPOSITORY) as repository:
            return record(arguments, repository, Environments(repository, arguments.environments))

    return guarded("history.py", run)


if __name__ == "__main__":
    sys.exit(main())
