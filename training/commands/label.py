# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m training label`: play and label games with a UCI engine, and store them as shards."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path

HELP = "play games and label their positions with a UCI engine; the same command resumes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from protocol.settings.sources import add_flags
    from protocol.settings.spec import settings_of
    from training.label.settings import LabelSettings

    parser.add_argument("--output", required=True, metavar="FOLDER", help="folder for the shards")
    parser.add_argument("--config", metavar="FILE", help="settings file; configs/label.toml shows every key")
    add_flags(parser, settings_of(LabelSettings).values())
    parser.add_argument("--backend", default="", help="backend of the branches' network (default: auto)")
    parser.add_argument(
        "--json", action="store_true", help="print a summary as JSON at the end, and no table"
    )


def run(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from engine.games.display import shows_tables
    from engine.games.journal import JournalError
    from engine.games.openings import OpeningError
    from engine.workers.executor import ExecutorError
    from protocol.host.processes import INTERRUPTED, run_interruptible
    from protocol.settings.sources import from_arguments
    from training.errors import TrainingError
    from training.label.display import LiveView, PlainView, summary_line
    from training.label.runner import LabelRunner
    from training.label.settings import LabelSettings

    settings = from_arguments(arguments, LabelSettings())
    console = Console()
    view: LiveView | PlainView
    if arguments.json:
        view = PlainView(sys.stderr)
    else:
        view = LiveView(console) if shows_tables(console) else PlainView(sys.stdout)
    runner = LabelRunner(settings, Path(arguments.output), view, backend=arguments.backend)
    ending = "interrupted"
    try:
        with view, contextlib.suppress(KeyboardInterrupt):
            ending = run_interruptible(runner.run())
    except (JournalError, OpeningError, ExecutorError) as error:
        raise TrainingError(str(error)) from None
    if arguments.json:
        print(json.dumps(runner.state.data(), ensure_ascii=False))
    else:
        print(summary_line(runner.state))
    if ending == "interrupted":
        print("interrupted; the same command goes on", file=sys.stderr)
        return INTERRUPTED
    if ending == "time":
        print("the time is over; the same command goes on", file=sys.stderr)
    return 0
