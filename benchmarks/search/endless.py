# SPDX-License-Identifier: GPL-3.0-or-later
"""An endless search of the whole engine in a bounded tree: memory, speed and the root's value over time.

    python -m benchmarks.search.endless [--megabytes 512] [--seconds 120] [--backend random]
        [--output FOLDER] [--json]

`go infinite` of a middle game with default options. The evaluator runs in its own process, as in play. A
sample is taken SAMPLES times in all. The figures compare the last quarter of the search with the time until
the tree was full: nodes per second, and nodes per second of the two processes' processor time, which is more
reliable on a busy machine. --output receives samples.csv and endless.png (needs the extra `plot`).
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass, fields
from itertools import pairwise
from pathlib import Path

import psutil

from benchmarks.common.command_line import count, positive
from benchmarks.common.figures import Figure, print_figures
from benchmarks.search.tree_growth import POSITION
from engine import Engine

SAMPLES = 240
FULL = 900  # per mille; pruning keeps a full tree slightly below its limit
OVERHEAD_MEGABYTES = 400.0
"""Memory of the two processes without the tree: interpreters, libraries, evaluation cache, batches."""


@dataclass(frozen=True, slots=True)
class Sample:
    """State of the search. megabytes: resident memory of both processes; processor: their seconds so far."""

    seconds: float
    processor: float
    nodes: int
    hashfull: int
    depth: int
    megabytes: float
    value: float


def samples(megabytes: int, seconds: float, backend: str) -> Iterator[Sample]:
    """Search for some seconds, and yield a sample SAMPLES times."""
    with Engine(backend=backend, tree_memory=megabytes) as engine:
        engine.position(POSITION)
        engine.analyse(nodes=1)
        here = psutil.Process()
        processes = [here, *here.children(recursive=True)]
        due = 0.0
        for analysis in engine.analysis():
            report = analysis.report
            if report.seconds >= due:
                due += seconds / SAMPLES
                times = [process.cpu_times() for process in processes]
                yield Sample(
                    report.seconds,
                    sum(each.user + each.system for each in times),
                    report.nodes,
                    report.hashfull,
                    report.depth,
                    sum(process.memory_info().rss for process in processes) / 2**20,
                    report.lines[0].q,
                )
            if report.seconds >= seconds:
                return


def rates(taken: Sequence[Sample], clock: Callable[[Sample], float]) -> list[tuple[float, float]]:
    """Return the end and the nodes/s by a clock of each interval between two samples."""
    return [
        (after.seconds, (after.nodes - before.nodes) / max(1e-9, clock(after) - clock(before)))
        for before, after in pairwise(taken)
    ]


def figures(taken: Sequence[Sample], megabytes: int) -> list[Figure]:
    """Return the figures of a search that filled its tree."""
    full = next((index for index, sample in enumerate(taken) if sample.hashfull >= FULL), None)
    if not full or full >= len(taken) - 4:
        raise SystemExit("the tree did not become full: search longer or in fewer megabytes")
    late = len(taken) - max(2, (len(taken) - full) // 4)

    def share(clock: Callable[[Sample], float]) -> float:
        first, filled, begin, last = taken[0], taken[full], taken[late], taken[-1]
        before = (filled.nodes - first.nodes) / (clock(filled) - clock(first))
        return 100 * (last.nodes - begin.nodes) / (clock(last) - clock(begin)) / before

    most = max(sample.megabytes for sample in taken)
    grown = taken[-1].megabytes - taken[full].megabytes
    return [
        Figure(f"{megabytes} MB, engine and evaluator: last quarter, % of nodes/s", share(_seconds), 85),
        Figure("the same by processor time", share(_processor), 85),
        Figure("most memory of both, MB", most, megabytes + OVERHEAD_MEGABYTES, at_least=False),
        Figure("memory gained since the tree was full, MB", grown, 50, at_least=False),
    ]


def _seconds(sample: Sample) -> float:
    return sample.seconds


def _processor(sample: Sample) -> float:
    return sample.processor


def draw(taken: Sequence[Sample], path: Path, title: str) -> None:
    """Draw a panel for each curve."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Picture

    curves = {
        "memory of engine and evaluator, MB": [(each.seconds, each.megabytes) for each in taken],
        "nodes/s": rates(taken, _seconds),
        "nodes/s of processor time": rates(taken, _processor),
        "the root's value (q)": [(each.seconds, each.value) for each in taken],
        "depth": [(each.seconds, float(each.depth)) for each in taken],
    }
    picture = Picture(figsize=(7, 9), layout="constrained")
    FigureCanvasAgg(picture)
    picture.suptitle(title)
    for axes, (name, points) in zip(picture.subplots(len(curves), sharex=True), curves.items(), strict=True):
        axes.plot(*zip(*points, strict=True), linewidth=1)
        axes.set_title(name, fontsize="small", loc="left")
        if not name.startswith("the"):
            axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds")
    picture.savefig(path, dpi=90)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=count, default=512, help="RamLimitMb (default 512)")
    parser.add_argument("--seconds", type=positive, default=120.0, help="of the search (default 120)")
    parser.add_argument("--backend", default="random", help="of the evaluator (default random)")
    parser.add_argument("--output", type=Path, help="folder for the samples and the plot")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    taken = list[Sample]()
    with ExitStack() as stack:
        row = None
        if arguments.output:
            arguments.output.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context((arguments.output / "samples.csv").open("w", newline=""))
            row = csv.writer(file).writerow
            row(each.name for each in fields(Sample))
        for sample in samples(arguments.megabytes, arguments.seconds, arguments.backend):
            taken.append(sample)
            if row is not None:
                row(astuple(sample))
                file.flush()
    if arguments.output:
        draw(taken, arguments.output / "endless.png", f"{arguments.megabytes} MB, {taken[-1].seconds:,.0f} s")
    print_figures(figures(taken, arguments.megabytes), as_json=arguments.json)


if __name__ == "__main__":
    main()
