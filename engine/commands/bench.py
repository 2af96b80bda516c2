# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront bench`: the speed of the search on fixed positions, or with --suite its solved positions."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, field
from shutil import get_terminal_size
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from engine.options.flags import RUN_FLAGS, engine_flags, options_of_arguments
from protocol.common.commands import Declared

if TYPE_CHECKING:
    from engine.options import Options
    from engine.search.report import Report

HELP = "measure the speed of the search on fixed positions, or count the solved positions of a suite"

POSITIONS = (
    "startpos",
    "r1bqkbnr/pp3ppp/2n5/2p1p3/2Pp4/3P1NP1/PP2PPBP/RNBQK2R w KQkq - 0 6",
    "rnbqkbnr/pp3ppp/4p3/2p1P3/P2p4/2P5/1P1P1PPP/RNBQKBNR w KQkq - 0 5",
    "r1bqk2r/ppppppbp/2n2np1/8/2BPP3/2P2Q2/PP3PPP/RNB1K1NR b KQkq - 0 5",
    "r1bqkb1r/p4pp1/1pn1pn2/1Np1p2p/2P5/3P2P1/PP2PPBP/R1BQK2R w KQkq - 0 9",
    "rn1qk2r/1bp3bp/pp1p2p1/3Pp2n/2P1PpP1/PP6/1B1N1P1P/RN1QKB1R b KQkq - 0 1",
    "r1b1rbk1/pp1p1pp1/n1p5/3P2Pp/2P1Nq2/P1N4P/1P2B3/R2Q1RK1 b - - 1 18",
    "r3r1k1/2p3pp/pp3p1n/1bpP4/6P1/P1Q1P2P/qBN2PB1/R2K4 b - - 5 25",
    "3r1rk1/pb1n1p1p/1p4pQ/8/3p2P1/1P2p2R/1qN1PP1P/2RK1B2 b - - 3 26",
    "2r3k1/5p2/6pp/4p3/p5P1/2q2Q2/7P/5R1K w - - 0 43",
    "4k3/8/4B2K/3r4/5p1P/5P2/8/8 b - - 4 57",
    "8/2k1n3/5N2/7p/7K/3p1P2/8/8 b - - 0 63",
)
"""Openings, middle games and endgames, most with about 35 legal moves."""

OPTIONS = (
    *RUN_FLAGS,
    "policy_head",
    "value_head",
    "batches_in_flight",
    "visits_per_position",
    "in_flight_factor",
    "second_batch",
    "look_ahead",
    "hash",
    "tree_memory",
)
DEFAULT_MOVETIME_MS = 1000


@dataclass(slots=True)
class Measurement:
    """The result of a run over the positions at one batch size (0: the evaluator's recommendation).

    The rates are medians of the positions. In a dead draw the search makes visits without evaluations, which
    would dominate a sum.
    """

    batch: int
    nodes: int = 0
    evaluations: int = 0
    batches: int = 0
    seconds: float = 0.0
    rates: list[tuple[float, float]] = field(default_factory=list)
    """Nodes and evaluations per second in each position."""

    @property
    def positions(self) -> int:
        return len(self.rates)

    def add(self, report: Report) -> None:
        """Add the search of one position."""
        self.nodes += report.playouts
        self.evaluations += report.evaluations
        self.batches += report.batches
        self.seconds += report.seconds
        seconds = max(report.seconds, 1e-9)
        self.rates.append((report.playouts / seconds, report.evaluations / seconds))

    def summary(self) -> dict[str, float]:
        nodes, evaluations = zip(*self.rates, strict=True)
        return {
            "batch": self.batch,
            "nodes": self.nodes,
            "evaluations": self.evaluations,
            "batches": self.batches,
            "seconds": self.seconds,
            "positions": self.positions,
            "nodes_per_second": round(median(nodes), 1),
            "evaluations_per_second": round(median(evaluations), 1),
            "mean_batch": round(self.evaluations / max(1, self.batches), 2),
        }


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _sizes(text: str) -> list[int]:
    sizes = [_positive(part) for part in text.split(",")]
    if max(sizes) > 1024:
        raise argparse.ArgumentTypeError("a batch has at most 1024 positions")
    return sizes


USAGE = "%(prog)s [flags]"
ARGUMENTS: Declared = {
    "": {
        "--nodes NODES": (_positive, "nodes to search in each position"),
        "--movetime MOVETIME": (
            _positive,
            f"milliseconds for each position (default: {DEFAULT_MOVETIME_MS})",
        ),
    },
    "--batch BATCH": (_sizes, "positions per batch, or several sizes: N[,N…]"),
    "--fen* FEN": "search this position instead of the built-in ones; may be repeated",
    "--suite FILE.epd": "count the solved positions of an EPD file with bm or am at 1, 100, 1,000 and 10,000 "
    "nodes; --nodes changes the last number",
    "--time-limit TIME_LIMIT:float": "seconds after which no further position starts",
    "--in-process": "evaluate by a hash inside the process, without an evaluator",
    "--json": "print JSON",
    "--openbench": "print nodes and nodes per second as OpenBench reads them",
    **engine_flags(OPTIONS),
}


def run(arguments: argparse.Namespace) -> int:
    options = options_of_arguments(arguments).changed(smart_pruning_factor=0.0)
    deadline = perf_counter() + arguments.time_limit if arguments.time_limit else None
    measurements = []
    batches = arguments.batch or [0]
    if arguments.suite and (arguments.fen or arguments.movetime or len(batches) > 1):
        print(
            "wavefront bench: with --suite there is no --fen, --movetime or second --batch", file=sys.stderr
        )
        return 2
    try:
        if arguments.suite:
            from engine.apps.games.suite import run_suite

            return run_suite(arguments, options.changed(minibatch_size=batches[0]))
        for batch in batches:
            measurements.append(
                _measure(
                    options.changed(minibatch_size=batch),
                    arguments,
                    deadline,
                    quiet=arguments.json or arguments.openbench,
                )
            )
    except ValueError as error:
        print(f"wavefront bench: {error}", file=sys.stderr)
        return 1
    summaries = [measurement.summary() for measurement in measurements]
    if arguments.openbench:
        nodes, seconds = (sum(each[key] for each in summaries) for key in ("nodes", "seconds"))
        print(f"Nodes searched  : {nodes}\nNodes/second    : {nodes / seconds:.0f}")
    elif arguments.json:
        print(json.dumps(summaries[0] if len(summaries) == 1 else summaries))
    else:
        _print_table(summaries)
    return 0


def _measure(
    options: Options, arguments: argparse.Namespace, deadline: float | None, *, quiet: bool
) -> Measurement:
    from engine.search.limits import Limits
    from engine.search.session import Session

    if arguments.nodes is not None:
        limits = Limits(nodes=arguments.nodes)
    else:
        limits = Limits(movetime_ms=arguments.movetime or DEFAULT_MOVETIME_MS)
    measurement = Measurement(options.minibatch_size)
    width = get_terminal_size().columns if sys.stdout.isatty() else None
    session = Session(
        options.changed(move_overhead_ms=0),
        log=lambda text: print(f"wavefront bench: {text}", file=sys.stderr),
        in_process=arguments.in_process,
    )
    try:
        while not session.ready(60.0):
            pass
        for number, fen in enumerate(arguments.fen or POSITIONS, 1):
            if deadline is not None and perf_counter() >= deadline and measurement.positions:
                break
            session.new_game()
            session.clear()
            session.set_position(None if fen == "startpos" else fen)
            report = session.search(limits)
            measurement.add(report)
            if not quiet:
                line = (
                    f"{number:3d}  {report.playouts:9,d} nodes  {report.nodes_per_second:9,d} nodes/s  "
                    f"{report.best_move or '-':<5}  {fen}"
                )
                print(line[:width], flush=True)
    finally:
        session.close()
    return measurement


def _print_table(summaries: list[dict[str, float]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="search speed")
    for heading in ("batch", "nodes", "seconds", "median nodes/s", "evaluations/s", "mean batch"):
        table.add_column(heading, justify="right")
    for summary in summaries:
        table.add_row(
            str(summary["batch"] or "auto"),
            f"{summary['nodes']:,.0f}",
            f"{summary['seconds']:.2f}",
            f"{summary['nodes_per_second']:,.0f}",
            f"{summary['evaluations_per_second']:,.0f}",
            f"{summary['mean_batch']:.1f}",
        )
    Console().print(table)
