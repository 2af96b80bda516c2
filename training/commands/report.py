# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m training report`: compare networks on positions that an engine searched deeply."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from protocol.common.outputs import OVERWRITE, figure_of, guard_output, is_figure

if TYPE_CHECKING:
    from training.report.figures import NetworkReport

HELP = "compare networks on deeply labelled positions: regret, calibration, value error"


ARGUMENTS = {
    "networks NET.pb.gz+": "network files, wavefront-cpu or wavefront-gpu",
    "--data! PATH+": "shards of `label --nodes 150000`, or folders of them",
    "--positions N = 0": "maximum number of positions, drawn at random (default: all)",
    "--seed N = 1": "random seed of that choice (default: %(default)d)",
    "--engine COMMAND": "UCI engine that judges moves without a label",
    "--nodes N = 150000": "nodes of each of its searches (default: %(default)d)",
    "--workers N = 0": "number of engines (default: one per core)",
    "--split": "also by pieces, best move, gap between lines and score",
    "--backend BACKEND = ''": "backend of the evaluator (default: auto)",
    "--threads N = 0": "threads of a CPU backend",
    "--plot FILE": "image file for calibration and regret",
    **OVERWRITE,
    "--json": "print JSON",
}


def run(arguments: argparse.Namespace) -> int:
    from engine.options import Options
    from evaluator.network import network_file
    from protocol.common.processors import usable_processors
    from training.data.reading import shards_of
    from training.evaluation import Evaluation
    from training.label.settings import LabelSettings
    from training.report.figures import network_report
    from training.report.judging import judge_of
    from training.report.plot import plot_reports
    from training.report.positions import kinds_of, read_positions

    if arguments.plot:
        reads = [*map(network_file, arguments.networks), *shards_of(arguments.data)]
        guard_output(arguments.plot, reads, overwrite=arguments.overwrite, own=is_figure)
        figure_of(1, 1)  # fails early if drawing is impossible

    def note(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    positions = read_positions(shards_of(arguments.data), arguments.positions, arguments.seed)
    note(f"{len(positions):,} positions, {int(positions.branch.sum()):,} of them beside games")
    judge = None
    if arguments.engine:
        settings = LabelSettings().parsed({"engine": arguments.engine, "nodes": arguments.nodes})
        judge = judge_of(positions, settings, arguments.workers or usable_processors(), note)
    kinds = kinds_of(positions) if arguments.split else {}
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
        reports.append(network_report(Path(network).name, positions, logits, wdl, rows.start, judge, kinds))
    if arguments.plot:
        plot_reports(reports, Path(arguments.plot))
    if arguments.json:
        print(json.dumps([report.data() for report in reports]))
    else:
        _print(reports)
    return 0


def _print(reports: list[NetworkReport]) -> None:
    from rich.console import Console
    from rich.table import Table

    headings = ("network", "positions", "best move", "regret", "log-loss", "at best T", "value RMSE", "bias")
    table = Table(*headings)
    for report in reports:
        for part, figures in report.parts.items():
            best = f"T {report.best_temperature:.2f}, V {report.best_value_scale:.2f}"
            name = f"{report.name}, {best}" if part == "all" else f"  {part}"
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
