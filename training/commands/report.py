# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m training report`: compare networks on positions that an engine searched deeply."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from training.report.figures import Judge, NetworkReport
    from training.report.positions import DeepPositions

HELP = "compare networks on deeply labelled positions: regret, calibration, value error"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "networks", nargs="+", metavar="NET.pb.gz", help="network files, wavefront-cpu or wavefront-gpu"
    )
    parser.add_argument(
        "--data",
        nargs="+",
        required=True,
        metavar="PATH",
        help="shards of `label --nodes 150000`, or folders of them",
    )
    parser.add_argument(
        "--positions",
        type=int,
        default=0,
        metavar="N",
        help="maximum number of positions, drawn at random (default: all)",
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="random seed of that choice (default: %(default)d)"
    )
    parser.add_argument("--engine", metavar="COMMAND", help="UCI engine that judges moves without a label")
    parser.add_argument(
        "--nodes",
        type=int,
        default=150_000,
        metavar="N",
        help="nodes of each of its searches (default: %(default)d)",
    )
    parser.add_argument(
        "--workers", type=int, default=0, metavar="N", help="number of engines (default: one per core)"
    )
    parser.add_argument("--backend", default="", help="backend of the evaluator (default: auto)")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="threads of a CPU backend")
    parser.add_argument("--plot", metavar="FILE", help="image file for calibration and regret")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    from engine.options import Options
    from evaluator.network import network_file
    from training.data.reading import shards_of
    from training.evaluation import Evaluation
    from training.plots import figure_of
    from training.report.figures import network_report
    from training.report.plot import plot_reports
    from training.report.positions import read_positions

    if arguments.plot:
        figure_of(1, 1)  # fails early if drawing is impossible

    def note(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    positions = read_positions(shards_of(arguments.data), arguments.positions, arguments.seed)
    note(f"{len(positions):,} positions, {int(positions.branch.sum()):,} of them beside games")
    judge = _judge(arguments, positions, note) if arguments.engine else None
    reports = []
    for network in arguments.networks:
        options = Options().parsed(
            {
                "weights": str(network_file(network)),
                "threads": arguments.threads,
                **({"backend": arguments.backend} if arguments.backend else {}),
            }
        )
        with Evaluation(options, note) as evaluation:
            rows = positions.encoded(evaluation.network.input_format)
            logits, wdl = evaluation.evaluate(rows)
        reports.append(network_report(Path(network).name, positions, logits, wdl, rows.start, judge))
    if arguments.plot:
        plot_reports(reports, Path(arguments.plot))
    if arguments.json:
        print(json.dumps([report.data() for report in reports]))
    else:
        _print(reports)
    return 0


def _judge(arguments: argparse.Namespace, positions: DeepPositions, note: Callable[[str], None]) -> Judge:
    """Return a function that has the engine search the positions after given moves."""
    import numpy as np

    from protocol.host.processors import usable_processors
    from training.config import TargetSettings
    from training.label.judge import judge
    from training.label.settings import LabelSettings
    from training.report.positions import expected
    from training.targets import label_wdl

    settings = LabelSettings().parsed({"engine": arguments.engine, "nodes": arguments.nodes})
    known: dict[tuple[int, int], float] = {}

    def judged(moves: dict[int, int]) -> dict[int, float]:
        new = {number: place for number, place in moves.items() if (number, place) not in known}
        note(f"{len(new)} moves that are not listed are judged")
        games = positions.games_after(new)
        ended = {"draw": 0.5}
        searched = {}
        for number, game in games.items():
            result = game.result()[0]
            if result == "undecided":
                searched[number] = game
            else:  # a move that ends the game wins it, unless it draws
                known[number, new[number]] = ended.get(result, 1.0)
        scores = judge(list(searched.values()), settings, arguments.workers or usable_processors(), note)
        for number, cp in zip(searched, scores, strict=True):
            if cp is not None:
                ply = np.array([positions.ply[number] + 1])
                wdl = label_wdl(np.array([cp], np.int16), ply, TargetSettings())
                known[number, new[number]] = 1.0 - float(expected(wdl)[0])
        return {number: known[number, place] for number, place in moves.items() if (number, place) in known}

    return judged


def _print(reports: list[NetworkReport]) -> None:
    from rich.console import Console
    from rich.table import Table

    from training.report.figures import PARTS

    headings = ("network", "positions", "best move", "regret", "log-loss", "at best T", "value RMSE", "bias")
    table = Table(*headings)
    for report in reports:
        for part in PARTS:
            if part not in report.parts:
                continue
            figures = report.parts[part]
            name = f"{report.name}, T {report.best_temperature:.2f}" if part == "all" else f"  {part}"
            table.add_row(
                name,
                f"{figures.positions:,}",
                f"{figures.top1:.1%} ± {figures.top1_error:.1%}",
                f"{'≥ ' if figures.unlisted else ''}{figures.regret:.2%} ± {figures.regret_error:.2%}",
                f"{figures.log_loss:.3f}",
                f"{figures.log_loss_best:.3f}",
                f"{figures.value_rmse:.3f}",
                f"{figures.value_bias:+.3f}",
            )
    Console(width=None if sys.stdout.isatty() else 120).print(table)
