# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m training plot`: draw the losses of runs."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "draw the losses of runs over the positions seen"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folders of runs")
    parser.add_argument(
        "--output", default="training.png", metavar="FILE", help="image file (default: %(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    from training.plots import plot_runs

    plot_runs([Path(folder) for folder in arguments.runs], Path(arguments.output))
    return 0
