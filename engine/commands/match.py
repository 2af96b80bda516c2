# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront match`: games between networks, sets of options and other engines, with statistics."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.commands.campaigns import (
    document_of,
    executor_arguments,
    print_lines,
    run_arguments,
    run_campaign,
)
from engine.options.flags import RUN_FLAGS, add_engine_flags
from protocol.common.commands import Declared
from protocol.common.outputs import PlotError, guard_apart, guard_output, is_figure, named_files

if TYPE_CHECKING:
    from engine.apps.match.campaign import MatchCampaign
    from engine.apps.match.config import MatchConfig

HELP = "play a match between networks, option sets and UCI engines"

EPILOG = """
players are written key=value,key=value:
  weights=FILE, backend=…, cpuct=…, any other option    this engine with options
  FILE.pb.gz, wavefront-cpu or wavefront-gpu            short for weights=…
  program=stockfish,args=…,"Skill Level=5",Hash=64      another UCI engine
  name=…, tc=60+0.6 | movetime=MS, nodes=N, depth=N     for both
for all players: --each tc=8+0.08,option.Hash=16 (option.NAME: for programs)

examples:
  %(prog)s --player a.pb.gz --player b.pb.gz --nodes 400
  %(prog)s --player cpuct=1.7 --player cpuct=2.2 --sprt elo0=0,elo1=10
  %(prog)s --player nodes=400 --player program=stockfish,movetime=50
  %(prog)s match.toml

The same command resumes an interrupted match.
"""


USAGE = "%(prog)s [CONFIG.toml] [--player KEY=VALUE,… …] [flags]"
ARGUMENTS: Declared = {
    "config_file CONFIG.toml?": "settings of the match; configs/match.toml shows every key",
    "--player* KEY=VALUE,…": "add a player",
    "--each KEY=VALUE,…": "options and limits of players without their own",
    "this engine's players without their own": add_engine_flags,
    "limits of players without their own (default: 400 nodes)": {
        "--tc CLOCK": "[moves/][minutes:]seconds[+increment], e.g. 60+0.6",
        "--movetime MS": "milliseconds per move",
        "--nodes N": "nodes per move",
        "--depth PLIES": "depth of each move",
    },
    "games": {
        "--games N": "games of each pairing (default: 100)",
        "--format FORMAT": "round-robin or gauntlet (the first against the rest)",
        "--no-pairs": "play each opening once, not with colours reversed",
        "--chess960": "play Chess960",
        "--seed N": "random seed (default: 1)",
        **executor_arguments("; 1 with a time limit"),
        "--openings FILE": "EPD, PGN or Polyglot file, or startpos (default: 2000 included openings)",
        "--order ORDER": "order of the openings: random (default) or sequential",
        "--plies N": "maximum plies of an opening (default: all)",
    },
    "ends of games and of the match": {
        "--sprt elo0=0,elo1=5,…?": "stop when an SPRT decides",
        "--resign score=600,moves=4,…?": "adjudicate lost games",
        "--draw from_move=40,moves=8,score=10?": "adjudicate draws",
        "--max-moves N": "draw after N moves",
        "--syzygy FOLDER": "end games that Syzygy tables decide",
    },
    "output": {
        "--output BASE": "write BASE.pgn, BASE.jsonl (journal) and BASE.json (summary)",
        "--event NAME": "Event tag of the PGN",
        "--plot FILE.png": "draw Elo over the games",
        **run_arguments(),
    },
}


LIMITS = ("tc", "movetime", "nodes", "depth")
KEYS = {
    **{name: f"defaults.{name}" for name in RUN_FLAGS},
    **{
        name: name
        for name in ("games", "format", "seed", "concurrency", "workers", "output", "event", "plot")
    },
    "openings": "openings.file",
    "order": "openings.order",
    "plies": "openings.plies",
    "max_moves": "adjudication.max_moves",
}
"""Keys of the flags in CONFIG.toml."""


def run(arguments: argparse.Namespace) -> int:
    from engine.apps.campaign.display import view_of
    from engine.apps.match.campaign import MatchCampaign
    from engine.apps.match.display import DISPLAY
    from engine.apps.match.plot import check_plot, plot_elo

    config = config_of_arguments(arguments)
    guard_run_of(config, arguments)
    plot = config.files.plot
    if plot is not None:
        guard_output(plot, overwrite=arguments.overwrite, own=is_figure)
        try:
            check_plot(plot)
        except PlotError as error:
            print(f"wavefront match: {error}", file=sys.stderr)
            return 2
    campaign = MatchCampaign(config)

    def report(ending: object) -> str | None:
        _print_result(campaign, as_json=arguments.json)
        if plot is not None and campaign.outcomes:
            try:
                plot_elo(plot, config, campaign.outcomes)
            except PlotError as error:
                return str(error)
        return None

    view = view_of(DISPLAY, as_json=arguments.json)
    return run_campaign("match", "the match", campaign, view, arguments, report)


def guard_run_of(config: MatchConfig, arguments: argparse.Namespace, *more: Path) -> None:
    """Raise OutputError if the match would write to a file that it reads. more: further files it writes."""
    files = config.files
    outputs = [path for path in (files.journal, files.pgn, files.summary, files.plot, *more) if path]
    reads = asdict(config) | {"output": "", "plot": "", "config": arguments.config_file}
    guard_apart(outputs, named_files(reads))


def config_of_arguments(arguments: argparse.Namespace) -> MatchConfig:
    """Return the match that the file and the flags configure. Raises SettingsError."""
    from engine.apps.match.configfile import match_config
    from engine.options.tables import merge, parse_settings

    document = document_of(arguments, KEYS)
    limits = {name: value for name in LIMITS if (value := getattr(arguments, name))}
    defaults = document.get("defaults")
    if limits and isinstance(defaults, dict):
        # Flags replace all limits of the file: its nodes must not limit a clock from the flags.
        for name in LIMITS:
            defaults.pop(name, None)
    each = parse_settings(arguments.each, "--each") if arguments.each else {}
    adjudication: dict[str, Any] = {
        flag: _rule(text, f"--{flag}")
        for flag in ("resign", "draw")
        if (text := getattr(arguments, flag)) is not None
    }
    if arguments.syzygy is not None:
        adjudication["tablebase"] = {"enabled": True, "paths": arguments.syzygy}
    flags: dict[str, Any] = {"defaults": each | limits, "adjudication": adjudication}
    if arguments.no_pairs:
        flags["pairs"] = False
    if arguments.chess960:
        flags["chess960"] = True
    if arguments.sprt is not None:
        flags["sprt"] = _rule(arguments.sprt, "--sprt")
    merge(document, flags)
    players = [player_table(text) for text in arguments.player]
    if players:
        given = document.get("player", [])
        document["player"] = [*(given if isinstance(given, list) else [given]), *players]
    if arguments.config_file:
        document.setdefault("output", Path(arguments.config_file).stem)
    return match_config(document, arguments.config_file or "match")


def _rule(text: str, flag: str) -> dict[str, Any]:
    from engine.options.tables import parse_settings

    return {"enabled": True, **parse_settings(text, flag)}


def player_table(text: str) -> dict[str, Any]:
    """Parse a player written key=value,key=value. A first part without a key is a network or a program.
    Raises SettingsError."""
    from engine.options.tables import parse_pairs
    from protocol.common.included import INCLUDED_NETWORKS
    from protocol.common.published import network_of_user
    from protocol.common.settings.spec import SettingsError

    entries = parse_pairs(text, "--player")
    short = entries.pop("", None)
    if short is not None:
        is_network = short in INCLUDED_NETWORKS or short.endswith((".pb.gz", ".pb")) or network_of_user(short)
        key = "weights" if is_network else "program"
        if key in entries:
            raise SettingsError(f"--player {text}: {key} is given twice")
        return {key: short, **entries}
    return dict(entries)


def _print_result(campaign: MatchCampaign, *, as_json: bool) -> None:
    from rich.console import Console

    from engine.apps.campaign.display import shows_tables
    from engine.apps.match import display
    from engine.apps.match.summary import summary

    config, standings = campaign.config, campaign.standings
    if as_json:
        print(json.dumps(summary(config, standings, campaign.throughput), ensure_ascii=False))
        return
    if not campaign.outcomes:
        return
    console = Console()
    if shows_tables(console):
        console.print(display.standings_table(config, standings, console.width))
        lines = display.pairs_lines(config, standings)
        if standings.sprt is not None:
            lines.append(display.sprt_line(standings))
    else:
        lines = display.standings_lines(config, standings)
    lines += display.pairing_lines(config, standings)
    lines.append(display.reasons_line(standings))
    if campaign.throughput.games:
        lines.append(display.speed_line(campaign))
    lines.append(f"games {config.files.pgn}, journal {config.files.journal}, summary {config.files.summary}")
    print_lines(lines)
