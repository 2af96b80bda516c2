# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront selfplay`: games of one network against itself as training data and PGN."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from engine.commands.campaigns import (
    document_of,
    executor_arguments,
    print_lines,
    run_arguments,
    run_campaign,
)
from engine.options.flags import RUN_FLAGS, add_engine_flags
from protocol.common.commands import Declared, declare
from protocol.common.outputs import guard_apart, named_files

if TYPE_CHECKING:
    from engine.apps.campaign.campaign import RunEnding
    from engine.apps.selfplay.campaign import SelfPlayCampaign
    from engine.apps.selfplay.config import SelfPlayConfig

HELP = "play games of one network against itself for training data"

EPILOG = """
examples:
  %(prog)s --weights net.pb.gz --games 1000 --nodes 400 --output run1
  %(prog)s selfplay.toml
  %(prog)s --engine temperature=1.1,cpuct=2 --games 0 --output run2

The same command resumes an interrupted run.
"""

NUMBERS = ("games", "nodes", "nodes_spread", "concurrency", "workers", "seed", "random_plies")
KEYS = {
    **{name: name for name in (*NUMBERS, "output", "format")},
    **{name: f"engine.{name}" for name in RUN_FLAGS},
    "time_limit": "time_limit_s",
    "openings": "openings.file",
}
"""Keys of the flags in CONFIG.toml."""


def _add_engine_arguments(group: argparse._ArgumentGroup) -> None:
    add_engine_flags(group)
    declare(group, {"--engine KEY=VALUE,…": "further options of configs/engine.toml"})


USAGE = "%(prog)s [CONFIG.toml] [flags]"
ARGUMENTS: Declared = {
    "config_file CONFIG.toml?": "settings of the run; configs/selfplay.toml shows every key",
    "games": {
        "--games N": "games to play; 0: until interrupted (default: 1000)",
        "--nodes N": "nodes per move (default: 800)",
        "--nodes-spread S": "draw each move's nodes from N (1 ± S) (default: 0)",
        **executor_arguments(),
        "--time-limit SECONDS": "end after this time",
        "--seed N": "random seed (default: 1)",
        "--chess960": "play Chess960",
        "--openings FILE": "EPD, PGN or Polyglot file, or startpos (default: 2000 included openings)",
        "--random-plies N": "up to N random moves after the opening (default: 0)",
    },
    "engine": _add_engine_arguments,
    "output": {
        "--output FOLDER": "folder for all files (default: selfplay)",
        "--format FORMAT": "format of the training data: lc0 or shards (default: lc0)",
        **run_arguments("a summary"),
    },
}


def run(arguments: argparse.Namespace) -> int:
    from engine.apps.campaign.display import view_of
    from engine.apps.selfplay.campaign import SelfPlayCampaign
    from engine.apps.selfplay.display import DISPLAY

    campaign = SelfPlayCampaign(config := config_of_arguments(arguments))
    folder = campaign.folder
    reads = asdict(config) | {"output": "", "config": arguments.config_file}
    guard_apart([folder.journal, folder.pgn, folder.summary], named_files(reads))
    view = view_of(DISPLAY, as_json=arguments.json)
    return run_campaign(
        *("selfplay", "the games", campaign, view, arguments),
        lambda ending: _print_result(campaign, ending, as_json=arguments.json),
    )


def config_of_arguments(arguments: argparse.Namespace) -> SelfPlayConfig:
    """Return the run that the file and the flags configure. Raises OptionError."""
    from engine.apps.selfplay.config import selfplay_config
    from engine.options.tables import merge, parse_settings
    from protocol.common.settings.spec import SettingsError

    document = document_of(arguments, KEYS)
    if arguments.engine:
        merge(document, {"engine": parse_settings(arguments.engine, "--engine")})
    if arguments.chess960:
        merge(document, {"engine": {"chess960": True}})
    if not document:
        raise SettingsError(
            "nothing says what to play: give --games N (0 plays until interrupted), or another flag, "
            "or a CONFIG.toml"
        )
    if arguments.config_file:
        document.setdefault("output", Path(arguments.config_file).stem)
    return selfplay_config(document, arguments.config_file or "selfplay")


def _print_result(campaign: SelfPlayCampaign, ending: RunEnding, *, as_json: bool) -> None:
    from engine.apps.selfplay.display import rows

    if as_json:
        print(json.dumps(campaign.summary(), ensure_ascii=False))
        return
    lines = list(rows(campaign).values()) if campaign.totals.games else []
    if ending == "time":
        lines.append("the time is over; the same command resumes the games")
    if campaign.totals.games:
        lines.append(f"everything is in {campaign.config.output}")
    print_lines(lines)
