# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the figures of another commit with those of the working tree, or of two commits.

    python -m benchmarks.revisions.compare COMMIT [OTHER] [--figures a,b,…] [--rounds N]
        [--fail-below 0.97] [--json]

Both are installed alike, each into a virtual environment below the user's cache, which is reused for the same
sources. The working tree is installed with its current files. Then the figures of both are measured
alternately. A ratio above 1 means that OTHER, or the working tree, is better, both for rates and for times.
Each round gives one ratio. The table has their median and range, and says `better` or `worse` if at least
three rounds agree. On a busy machine, figures of CPU time are more reliable than those of the clock.

Exit code: 0; 1 with --fail-below if a figure's median ratio is below it; 2 if a build or measurement failed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.common.command_line import FAILED, positive
from benchmarks.common.figures import number
from benchmarks.common.installation import REPOSITORY, Installation
from benchmarks.common.progress import Progress
from benchmarks.revisions.environments import Environment, Environments, changed_packages
from benchmarks.revisions.machine import this_machine
from benchmarks.revisions.measuring import add_measuring_arguments, figure_names, guarded, show_failures
from benchmarks.revisions.revisions import Repository
from benchmarks.revisions.suite import SUITE, Benchmark, Quantity, chosen
from benchmarks.revisions.turns import Failure, Measured, Spread, first_start, measure_in_turns

BELOW = 1
"""Exit code of --fail-below."""

ROUNDS_TO_TELL = 3
"""Minimum rounds for a verdict: with fewer, agreement means nothing."""

ALIKE = 0.001
"""Ratios this close to 1 are no difference, even if they are the same in every round."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One quantity of two installations. old, new: its value in each round. gains: improvement ratios."""

    quantity: Quantity
    old: Sequence[float]
    new: Sequence[float]

    @property
    def gains(self) -> Spread:
        return Spread.of([self.quantity.gain(old, new) for old, new in zip(self.old, self.new, strict=True)])

    @property
    def verdict(self) -> str:
        """Verdict on which all rounds agree; empty if they disagree or are too few."""
        gains = self.gains
        if len(self.old) < ROUNDS_TO_TELL:
            return ""
        return "better" if gains.low > 1 + ALIKE else "worse" if gains.high < 1 - ALIKE else ""


def comparisons(measured: Measured) -> list[Comparison]:
    """Return the comparisons of two installations, the older first."""
    return [Comparison(quantity, *measured.values[quantity.name]) for quantity in measured.quantities]


def table(rows: Sequence[Comparison], old: str, new: str) -> Table:
    """Return a table for a terminal of at least 80 columns."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    made.add_column("")
    for heading in (old, new, "ratio", "range"):
        made.add_column(heading.replace("+", "\n+"), justify="right", no_wrap=True)
    made.add_column("")
    for row in rows:
        gains = row.gains
        made.add_row(
            row.quantity.what,
            number(Spread.of(row.old).median),
            number(Spread.of(row.new).median),
            f"{gains.median:.3f}",
            f"{gains.low:.3f}–{gains.high:.3f}",
            row.verdict,
        )
    return made


def as_json(
    rows: Sequence[Comparison], failures: Sequence[Failure], old: Environment, new: Environment
) -> dict[str, Any]:
    """Return all measurements as JSON data."""
    return {
        "machine": asdict(this_machine()),
        "old": asdict(old.revision),
        "new": asdict(new.revision),
        "changed_packages": changed_packages(old, new),
        "figures": [
            {
                **asdict(row.quantity),
                "old": list(row.old),
                "new": list(row.new),
                "ratio": asdict(row.gains),
                "verdict": row.verdict,
            }
            for row in rows
        ],
        "failures": [asdict(failure) for failure in failures],
    }


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; None means that of the process."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commit", metavar="COMMIT", help="a hash, a tag, a branch, HEAD~3")
    parser.add_argument("other", metavar="OTHER", nargs="?", help="another (default: the working tree)")
    add_measuring_arguments(parser)
    parser.add_argument(
        "--fail-below", type=positive, metavar="RATIO", help="exit with 1 if a median ratio is below it"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args(words)


def compare(
    arguments: argparse.Namespace,
    repository: Repository,
    environments: Environments,
    suite: Sequence[Benchmark] = SUITE,
    warm_up: Callable[[Installation], object] = first_start,
) -> int:
    """Build, measure and print; return the exit code."""
    benchmarks = chosen(figure_names(arguments), suite)
    old_revision = repository.commit(arguments.commit)
    new_revision = repository.commit(arguments.other) if arguments.other else repository.working_tree()
    with Progress() as progress:
        old = environments.get(old_revision, progress, rebuild=arguments.rebuild)
        rebuild = arguments.rebuild and new_revision.tree != old_revision.tree
        new = environments.get(new_revision, progress, rebuild=rebuild)
        environments.remove_old()
        if new_revision.tree == old_revision.tree:
            progress.note("both have the same sources: what differs is chance")
        if changed := changed_packages(old, new):
            progress.note(
                f"other packages differ, too: {'; '.join(changed)} (where only the day of building is why, "
                "--rebuild makes them alike)"
            )
        measured = measure_in_turns(
            [old.installation, new.installation],
            benchmarks,
            rounds=arguments.rounds,
            seconds=arguments.seconds,
            progress=progress,
            warm_up=warm_up,
        )
    rows = comparisons(measured)
    if arguments.json:
        print(json.dumps(as_json(rows, measured.failures, old, new), indent=1))
    elif rows:
        console = Console()
        rounds = "1 round" if arguments.rounds == 1 else f"{arguments.rounds} rounds"
        console.print(f"{this_machine()}; {rounds}", highlight=False, soft_wrap=True)
        for revision in (old_revision, new_revision):
            console.print(
                f"{revision.name}  {revision.subject}", markup=False, highlight=False, soft_wrap=True
            )
        console.print(table(rows, old_revision.name, new_revision.name))
    show_failures(measured.failures)
    below = [row for row in rows if arguments.fail_below and row.gains.median < arguments.fail_below]
    for row in below:
        message = (
            f"{row.quantity.name}: median ratio {row.gains.median:.3f} is below {arguments.fail_below:g}"
        )
        print(message, file=sys.stderr)
    return FAILED if measured.failures else BELOW if below else 0


def main(words: Sequence[str] | None = None) -> int:
    arguments = parse(words)

    def run() -> int:
        with Repository(REPOSITORY) as repository:
            return compare(arguments, repository, Environments(repository, arguments.environments))

    return guarded("compare.py", run)


if __name__ == "__main__":
    sys.exit(main())
