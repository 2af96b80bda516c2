# SPDX-License-Identifier: GPL-3.0-or-later
"""The common part of the commands that run campaigns: `match`, `selfplay` and `tune`."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from protocol.common.outputs import OVERWRITE
from protocol.common.printing import ReportedError
from protocol.common.processes import INTERRUPTED, run_interruptible

if TYPE_CHECKING:
    from engine.apps.campaign.campaign import Campaign, RunEnding
    from engine.workers.executor import MakeExecutor


def executor_arguments(timed: str = "") -> dict[str, str]:
    """Return --concurrency, --workers and --ray. timed: the first one's default for games with a clock."""
    return {
        "--concurrency N": f"concurrent games (default: as many as keep the evaluator busy{timed})",
        "--workers N": "processes that play games (default: auto: one, more for fast devices)",
        "--ray ADDRESS": "play on the nodes of a Ray cluster (docs/how-to/cluster.md)",
    }


def run_arguments(summary: str = "the summary") -> dict[str, str]:
    """Return --restart, --overwrite and --json. summary: what the last one prints."""
    return {
        "--restart": "discard the existing games",
        **OVERWRITE,
        "--json": f"print {summary} as JSON at the end, and no table",
    }


def document_of(arguments: argparse.Namespace, keys: Mapping[str, str]) -> dict[str, Any]:
    """Return the tables of CONFIG.toml, overridden by the flags that were given. keys: of the flags' values,
    such as openings.file. Raises SettingsError."""
    from engine.options.tables import merge
    from protocol.common.settings.sources import read_document

    document: dict[str, Any] = read_document(arguments.config_file) if arguments.config_file else {}
    for name, key in keys.items():
        if (value := getattr(arguments, name)) is not None:
            table, _, last = key.rpartition(".")
            merge(document, {table: {last: value}} if table else {last: value})
    return document


def run_campaign(
    command: str,
    games: str,
    campaign: Campaign[Any, Any],
    view: Any,
    arguments: argparse.Namespace,
    report: Callable[[RunEnding], str | None],
) -> int:
    """Run a campaign, report its result, and return the exit status: 0 after success, 1 after a failure, 130
    after an interruption.

    games: what the same command continues after an interruption. report: called at the end; returns why it
    failed, if it did.
    """
    from engine.apps.match.players.player import PlayerError

    failure = ""
    ending: RunEnding = "interrupted"
    make_executor = _executor(arguments, campaign.workers)
    run = campaign.run(
        view, restart=arguments.restart, overwrite=arguments.overwrite, make_executor=make_executor
    )
    try:
        with view, contextlib.suppress(KeyboardInterrupt):
            ending = run_interruptible(run)
    except (ReportedError, PlayerError) as error:
        failure = str(error)
    failed = report(ending)
    failure = failure or failed or ""
    if failure:
        print(f"wavefront {command}: {failure}", file=sys.stderr)
        return 1
    if ending == "interrupted":
        print(f"interrupted; the same command resumes {games}", file=sys.stderr)
        return INTERRUPTED
    return 0


def print_lines(lines: Iterable[str]) -> None:
    """Print lines; a terminal wraps them at words, a log does not."""
    from rich.console import Console

    from engine.apps.campaign.display import shows_tables

    console = Console()
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=not shows_tables(console))


def _executor(arguments: argparse.Namespace, workers: int) -> MakeExecutor[Any]:
    """Return the constructor of the executor. workers: as configured; 0 is auto. Raises SettingsError."""
    from engine.workers.local import local_executor

    if arguments.ray is None:
        return partial(local_executor, workers=workers)
    if workers > 1:
        from protocol.common.settings.spec import SettingsError

        raise SettingsError("workers are processes of this machine: with --ray leave them out")
    from engine.workers.ray import ray_executor

    return partial(ray_executor, address=arguments.ray)
