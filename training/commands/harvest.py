# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m training harvest`: positions from games of a network's policy, one evaluation a move."""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

from engine.options.flags import engine_flags, options_of_arguments
from protocol.common.commands import Declared
from protocol.common.processes import INTERRUPTED


def _number(kind: type[float], low: float, high: float, text: str) -> float:
    """Read a number within a range."""
    with suppress(ValueError):
        if low <= (value := kind(text)) <= high:
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a number from {low} to {high}")


HELP = "play games with a network's policy, one evaluation a move, and keep one position in eight"

ARGUMENTS: Declared = {
    "output FOLDER": "its folder train gets the shards to train on, heldout the others",
    "--games N = 100000": (
        partial(_number, int, 1, 10**9),
        "number of games, in blocks of 2048; a later run plays missing blocks",
    ),
    "--seed N = 1": "of openings, moves and the choice of positions",
    "--one-of N = 8": (partial(_number, int, 1, 300), "plies of which one position is kept"),
    "--temperature T = 0.7": (partial(_number, float, 0.01, 100), "of the policy that plays"),
    "--workers N = 0": "processes that play (default: three quarters of the processors)",
    **engine_flags(("weights", "backend", "evaluator")),
}


def run(arguments: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from engine.apps.campaign import QuietView, shows_tables
    from evaluator.network import network_file
    from protocol.common.files import write_atomically
    from protocol.common.folders import expanded
    from protocol.common.printing import failing_as
    from protocol.common.processors import usable_processors
    from training.data.annotations import prior_identity
    from training.devices import backends_of, evaluators
    from training.errors import TrainingError
    from training.harvest import Harvest, HarvestCampaign

    options = options_of_arguments(arguments)
    workers = arguments.workers or max(1, usable_processors() * 3 // 4)
    numbers = (arguments.games, arguments.seed, arguments.one_of, arguments.temperature)
    console = Console(stderr=True, markup=False, highlight=False)
    columns = (TextColumn("games"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not shows_tables(console)) as progress:
        task = progress.add_task("", total=arguments.games)

        def play(addresses: tuple[str, ...], network: str) -> tuple[str, HarvestCampaign]:
            harvest = Harvest(addresses, arguments.output, network, *numbers)
            campaign = HarvestCampaign(harvest, workers, lambda games: progress.advance(task, games))
            view = QuietView(lambda text: console.print(text, soft_wrap=True))
            return asyncio.run(campaign.run(view)), campaign

        if options.evaluator:
            ending, campaign = play((options.evaluator,), options.weights)
            network = ""
        else:
            weights = network_file(options.weights or "wavefront-gpu")
            with evaluators(backends_of(options.backend), Path(weights)) as addresses:
                ending, campaign = play(tuple(addresses.split(",")), "")
            network = prior_identity(str(weights))
    print(f"{campaign.positions:,} positions to train on in {arguments.output}")
    manifest = expanded(arguments.output) / "manifest.toml"
    with failing_as(TrainingError, f"cannot write {manifest}"):
        write_atomically(manifest, campaign.manifest(network).encode())
    if ending == "interrupted":
        print("interrupted; the same command plays the missing games", file=sys.stderr)
        return INTERRUPTED
    return 0
