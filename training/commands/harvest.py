# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m training harvest`: positions from games of a network's policy, one evaluation a move."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from engine.options.flags import engine_flags, options_of_arguments
from protocol.common.commands import Declared
from protocol.common.processes import INTERRUPTED

HELP = "play games with a network's policy, one evaluation a move, and keep one position in eight"

ARGUMENTS: Declared = {
    "output FOLDER": "its folder train gets the shards to train on, heldout the others",
    **engine_flags(("weights", "backend", "evaluator")),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from protocol.common.settings.sources import add_flags
    from protocol.common.settings.spec import settings_of
    from training.harvest import HarvestSettings

    add_flags(parser, settings_of(HarvestSettings).values())


def run(arguments: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from engine.apps.campaign import QuietView, shows_tables
    from evaluator.network import network_file
    from protocol.common.settings.sources import from_arguments
    from training.data.annotations import prior_identity
    from training.devices import backends_of, evaluators
    from training.evaluation import Evaluation
    from training.harvest import Harvest, HarvestCampaign, HarvestSettings

    settings = from_arguments(arguments, HarvestSettings())
    options = options_of_arguments(arguments)
    console = Console(stderr=True, markup=False, highlight=False)
    columns = (TextColumn("games"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not shows_tables(console)) as progress:
        task = progress.add_task("", total=settings.games)

        def play(addresses: tuple[str, ...], network: str, digest: str) -> tuple[str, HarvestCampaign]:
            harvest = Harvest(addresses, arguments.output, settings, network, digest)
            campaign = HarvestCampaign(harvest, lambda games: progress.advance(task, games))
            view = QuietView(lambda text: console.print(text, soft_wrap=True))
            return asyncio.run(campaign.run(view)), campaign

        if options.evaluator:
            with Evaluation(options, lambda text: console.print(text, soft_wrap=True)) as evaluation:
                digest = evaluation.network.content_hash
            ending, campaign = play((options.evaluator,), options.weights, digest)
        else:
            weights = network_file(options.weights or "wavefront-gpu")
            with evaluators(backends_of(options.backend), Path(weights)) as addresses:
                digest = prior_identity(str(weights))
                ending, campaign = play(tuple(addresses.split(",")), "", digest)
    print(f"{campaign.positions:,} positions to train on in {arguments.output}")
    campaign.describe()
    if ending == "interrupted":
        print("interrupted; the same command plays the missing games", file=sys.stderr)
        return INTERRUPTED
    return 0
