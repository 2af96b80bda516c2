# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m training plot`: draw the losses of runs, or the Elo of a loop."""

from __future__ import annotations

import argparse
from pathlib import Path

from protocol.common.outputs import OVERWRITE, guard_output, is_figure

HELP = "draw the losses of runs over the positions seen, or the Elo of a loop's generations"


ARGUMENTS = {
    "runs RUN+": "folders of runs, or one of a loop",
    "--output FILE = training.png": "image file (default: %(default)s)",
    **OVERWRITE,
}


def run(arguments: argparse.Namespace) -> int:
    from training.loop import JOURNAL
    from training.plots import METRICS, plot_loop, plot_runs

    runs, output = [Path(folder) for folder in arguments.runs], Path(arguments.output)
    journal = runs[0] / JOURNAL
    reads = [journal, *(run / METRICS for run in runs)]
    guard_output(output, reads, overwrite=arguments.overwrite, own=is_figure)
    if journal.exists():
        plot_loop(journal, output)
    else:
        plot_runs(runs, output)
    return 0
