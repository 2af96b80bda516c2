# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront tune`: numeric options of the search, tuned by games."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from engine.commands.campaigns import (
    document_of,
    executor_arguments,
    run_arguments,
    run_campaign,
)
from engine.commands.match import guard_run_of
from engine.options.flags import RUN_FLAGS, add_engine_flags
from protocol.common.commands import Declared

if TYPE_CHECKING:
    from engine.apps.tune.campaign import TuneCampaign
    from engine.apps.tune.config import TuneConfig

HELP = "tune numeric options of the search by games (SPSA)"

EPILOG = """
examples:
  %(prog)s tune.toml
  %(prog)s tune.toml --weights net.pb.gz --evaluator tcp://host:5555

The same command resumes an interrupted tuning. The kernels of a GPU are tuned by
`wavefront-evaluator tune`.
"""


ARGUMENTS: Declared = {
    "config_file CONFIG.toml": "parameters and settings of the games; configs/tune.toml shows every key",
    "players of this engine": add_engine_flags,
    "games": executor_arguments(),
    "output": {
        "--output BASE": "write BASE.pgn, BASE.jsonl (journal), BASE.json (summary) and BASE.svg (plot) "
        "(default: name of CONFIG.toml)",
        **run_arguments(),
    },
}


def run(arguments: argparse.Namespace) -> int:
    from engine.apps.campaign.display import view_of
    from engine.apps.tune.campaign import TuneCampaign
    from engine.apps.tune.display import DISPLAY

    config = config_of_arguments(arguments)
    guard_run_of(config.match, arguments, config.plot)
    campaign = TuneCampaign(config)
    view = view_of(DISPLAY, as_json=arguments.json)
    return run_campaign(
        *("tune", "the tuning", campaign, view, arguments),
        lambda ending: _print_result(campaign, as_json=arguments.json),
    )


def config_of_arguments(arguments: argparse.Namespace) -> TuneConfig:
    """Return the tuning that the file and the flags configure. Raises SettingsError."""
    from engine.apps.tune.config import tune_config

    keys = {name: name for name in ("concurrency", "workers", "output")}
    document = document_of(arguments, keys | {name: f"defaults.{name}" for name in RUN_FLAGS})
    document["output"] = document.get("output") or Path(arguments.config_file).stem
    return tune_config(document, arguments.config_file)


def _print_result(state: TuneCampaign, *, as_json: bool) -> None:
    from rich.console import Console

    from engine.apps.campaign.display import shows_tables
    from engine.apps.match.display import reasons_line, speed_line
    from engine.apps.tune.display import progress_line, value_lines, values_table
    from engine.apps.tune.result import summary

    data = summary(state.progress, state.standings, state.throughput)
    if as_json:
        print(json.dumps(data, ensure_ascii=False))
        return
    if not state.outcomes:
        return
    console = Console()
    lines = [progress_line(state)]
    if shows_tables(console):
        console.print(values_table(state))
    else:
        lines += value_lines(state)
    lines.append(reasons_line(state.standings))
    if state.throughput.games:
        lines.append(speed_line(state))
    files, plot = state.config.files, state.progress.config.plot
    lines.append(f"games {files.pgn}, journal {files.journal}, summary {files.summary}, plot {plot}")
    if state.progress.steps:
        lines += ["test the values with:", "  " + data["test"]]
    for line in lines:
        # A terminal wraps lines by itself, so that the command can be copied.
        console.print(line, markup=False, highlight=False, soft_wrap=True)
