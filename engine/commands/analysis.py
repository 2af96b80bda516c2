"""`wavefront analysis`: queries of programs, as JSON lines or over WebSocket (docs/analysis.md)."""

from __future__ import annotations

import argparse
import sys
import threading

HELP = "analyse positions and games for programs: JSON lines in and out, many at once"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from engine.analysis.settings import AnalysisSettings
    from engine.options import add_flags
    from protocol.settings import sources
    from protocol.settings.spec import settings_of

    parser.add_argument(
        "--quit-without-waiting",
        action="store_true",
        help="at the end of input, end what is being searched and drop what waits",
    )
    sources.add_flags(parser, settings_of(AnalysisSettings).values())
    add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    from engine.analysis.lines import LineClient, read_lines
    from engine.analysis.scheduler import Scheduler
    from engine.analysis.settings import AnalysisSettings
    from engine.evaluation.errors import NoEvaluatorError
    from engine.options import options_of_arguments
    from protocol.settings.sources import from_arguments

    options = options_of_arguments(arguments)
    settings = from_arguments(argparse.Namespace(**vars(arguments) | {"config": None}), AnalysisSettings())
    failures: list[NoEvaluatorError] = []

    def fail(error: NoEvaluatorError) -> None:
        """There is no evaluator and never was: answer so and end."""
        failures.append(error)
        scheduler.end(client, at_once=True)

    scheduler = Scheduler(options, settings, log=_log, on_failure=fail)
    client = LineClient(sys.stdout.buffer, settings.max_unread_bytes, resume=lambda: scheduler.resume(client))
    reader = threading.Thread(
        target=read_lines,
        args=(scheduler, client, sys.stdin.buffer),
        kwargs={"at_once": arguments.quit_without_waiting},
        name="analysis-input",
        daemon=True,
    )
    reader.start()
    try:
        client.finished.wait()
    finally:
        scheduler.close()
    if failures:
        _log(str(failures[0]))
    return 1 if failures else 0


def _log(text: str) -> None:
    print(f"wavefront analysis: {text}", file=sys.stderr, flush=True)
