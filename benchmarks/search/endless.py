# SPDX-License-Identifier: GPL-3.0-or-later
"""An endless search of the whole engine in a bounded tree: memory, speed and the root's value over time.

    python -m benchmarks.search.endless [--megabytes 512] [--seconds 120] [--backend random]
        [--output FOLDER] [--json]

`go infinite` of a middle game with default options. The evaluator runs in its own process, as in play. A
sample is taken SAMPLES times in all. The figures compare the last quarter of the search with the time until
the tree was full: nodes per second, and nodes per second of the two processes' processor time, which is more
reliable on a busy machine. --output receives samples.csv and endless.svg.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
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

WIDTH, HEIGHT, LEFT, GAP = 640, 110, 70, 40
STYLE = "text{font:12px sans-serif;fill:#333}.f{fill:none;stroke:#bbb}.p{fill:none;stroke:#2080d0}"


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


def drawing(taken: Sequence[Sample], title: str) -> str:
    """Return an SVG with a panel for each curve."""
    curves = {
        "memory of engine and evaluator, MB": [(each.seconds, each.megabytes) for each in taken],
        "nodes/s": rates(taken, _seconds),
        "nodes/s of processor time": rates(taken, _processor),
        "the root's value (q)": [(each.seconds, each.value) for each in taken],
        "depth": [(each.seconds, float(each.depth)) for each in taken],
    }
    last = taken[-1].seconds
    panels = []
    for index, (name, points) in enumerate(curves.items()):
        top = 50 + index * (HEIGHT + GAP)
        values = [value for _, value in points]
        low, high = (min(values), max(values)) if name.startswith(("the", "depth")) else (0.0, max(values))
        height = high - low or 1.0
        path = " ".join(
            f"{LEFT + WIDTH * second / last:.1f},{top + HEIGHT * (high - value) / height:.1f}"
            for second, value in points
        )
        panels.append(
            f'<rect class="f" x="{LEFT}" y="{top}" width="{WIDTH}" height="{HEIGHT}"/>'
            f'<polyline class="p" points="{path}"/><text x="{LEFT}" y="{top - 6}">{name}</text>'
            f'<text x="{LEFT - 6}" y="{top + 10}" text-anchor="end">{high:,.4g}</text>'
            f'<text x="{LEFT - 6}" y="{top + HEIGHT}" text-anchor="end">{low:,.4g}</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} '
        f'{50 + len(panels) * (HEIGHT + GAP)}" role="img"><style>{STYLE}</style>'
        f'<rect width="100%" height="100%" fill="#fff"/><text x="{LEFT}" y="20">{title}</text>'
        f"{''.join(panels)}</svg>\n"
    )


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
    for sample in samples(arguments.megabytes, arguments.seconds, arguments.backend):
        taken.append(sample)
        if arguments.output and len(taken) > 1:
            write(arguments.output, taken, f"{arguments.megabytes} MB, {sample.seconds:,.0f} s")
    print_figures(figures(taken, arguments.megabytes), as_json=arguments.json)


def write(folder: Path, taken: Sequence[Sample], title: str) -> None:
    """Write the samples so far and their plot."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "samples.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [each.name for each in fields(Sample)])
        writer.writeheader()
        writer.writerows(asdict(sample) for sample in taken)
    (folder / "endless.svg").write_text(drawing(taken, title))


if __name__ == "__main__":
    main()
