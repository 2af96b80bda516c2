# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront analysis`: queries of programs, by JSON lines (docs/reference/analysis.md)."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING

from engine.options.flags import engine_flags
from protocol.common.commands import declare
from protocol.common.printing import say

if TYPE_CHECKING:
    from engine.apps.analysis.settings import AnalysisSettings
    from engine.evaluation.errors import NoEvaluatorError
    from engine.options import Options

_log = partial(say, "wavefront analysis")

HELP = "analyse positions and games for programs, many concurrently: JSON lines in and out"


ARGUMENTS = {
    "--quit-without-waiting": "at the end of input, end running searches and discard waiting positions",
    "--schema": "print the JSON Schema of messages, and exit",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from engine.apps.analysis.settings import AnalysisSettings
    from protocol.common.settings import sources
    from protocol.common.settings.spec import settings_of

    sources.add_flags(parser, settings_of(AnalysisSettings).values())
    declare(parser, engine_flags(defaults=default_options()))


def default_options() -> Options:
    """Return the default options of this command. Transpositions are off, so that the search of one query
    cannot change the values of another."""
    from engine.options import Options

    return Options(transposition_visits=0)


def run(arguments: argparse.Namespace) -> int:
    from engine.apps.analysis.settings import AnalysisSettings
    from engine.options.flags import options_of_arguments
    from protocol.common.settings.sources import from_arguments

    if arguments.schema:
        from engine.apps.analysis.schema import schema_text

        print(schema_text(), end="")
        return 0
    options = options_of_arguments(arguments, default_options())
    settings = from_arguments(argparse.Namespace(**vars(arguments) | {"config": None}), AnalysisSettings())
    return _converse(options, settings, at_once=arguments.quit_without_waiting)


def _converse(options: Options, settings: AnalysisSettings, *, at_once: bool) -> int:
    """Serve standard input and output until both are finished."""
    from engine.apps.analysis.lines import LineClient, read_lines
    from engine.apps.analysis.scheduler import QueryScheduler
    from protocol.common.processes import own_input

    failures: list[NoEvaluatorError] = []
    scheduler = QueryScheduler(options, settings, log=_log)
    client = LineClient(sys.stdout.buffer, settings.max_unread_bytes, scheduler.resume)

    def fail(error: NoEvaluatorError) -> None:
        failures.append(error)
        scheduler.end(client, at_once=True)

    scheduler.start(fail)
    threading.Thread(
        target=read_lines,
        args=(scheduler, client, os.fdopen(own_input(), "rb")),
        kwargs={"at_once": at_once},
        name="analysis-input",
        daemon=True,
    ).start()
    try:
        client.finished.wait()
    finally:
        scheduler.close()
    for error in failures:
        _log(str(error))
    return 1 if failures else 0
