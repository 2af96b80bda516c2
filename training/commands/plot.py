# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m training plot`: draw the losses of runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from protocol.host.outputs import add_overwrite_flag, guard_output, is_figure

HELP = "draw the losses of runs over the positions seen"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folders of runs")
    parser.add_argument(
        "--output", default="training.png", metavar="FILE", help="image file (default: %(default)s)"
    )
    add_overwrite_flag(parser)


def run(arguments: argparse.Namespace) -> int:
    from training.plots import METRICS, plot_runs

    runs = [Path(folder) for folder in arguments.runs]
    reads = [run / METRICS for run in runs]
    guard_output(arguments.output, reads, overwrite=arguments.overwrite, own=is_figure)
    plot_runs(runs, Path(arguments.output))
    return 0
