# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m training annotate`: add a network's policy and WDL to shards."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from engine.options.flags import engine_flags, options_of_arguments
from protocol.common.commands import Declared
from protocol.common.processes import INTERRUPTED, child_command
from protocol.common.processors import share_of_processors

if TYPE_CHECKING:
    from engine.options import Options

HELP = (
    "add the policy and WDL of a network (default: wavefront-gpu), or of searches with it, to shards, as the "
    "prior of training"
)


ARGUMENTS: Declared = {
    "paths PATH+": "shards or folders of them",
    "--nodes N = 0": "annotate with a search of N nodes of each position (default: the network alone)",
    "--workers N = 0": "processes that search (default: as many as keep the evaluator busy)",
    "--constants-of FILE": "network whose search constants are used (default: its own)",
    **engine_flags(("weights", "backend", "evaluator", "threads")),
    "--json": "print a summary as JSON at the end",
}


def run(arguments: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from engine.apps.campaign import shows_tables
    from engine.options import Options
    from training.annotate import annotate, annotate_by_searches
    from training.data.reading import count_positions, shards_of
    from training.devices import backends_of
    from training.searches import SEARCHES

    paths = shards_of(arguments.paths)
    preset = SEARCHES if arguments.nodes > 0 else Options()
    options = _with_network(options_of_arguments(arguments, preset))
    if arguments.constants_of:
        options = _with_constants(options, arguments.constants_of)
    devices = [options.backend] if options.evaluator else backends_of(options.backend)
    if len(devices) > 1:
        try:
            more = ("--constants-of", arguments.constants_of) if arguments.constants_of else ()
            return _on_each(devices, paths, options, arguments.nodes, arguments.workers, *more)
        except KeyboardInterrupt:
            return INTERRUPTED  # each command has said it
    total = sum(map(count_positions, paths))
    console = Console(stderr=arguments.json, markup=False, highlight=False)
    columns = (TextColumn("positions"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not shows_tables(console)) as progress:
        task = progress.add_task("", total=total)
        try:
            told = (
                lambda text: console.print(text, soft_wrap=True),
                lambda count: progress.advance(task, count),
            )
            if arguments.nodes > 0:
                done = annotate_by_searches(paths, options, arguments.nodes, arguments.workers, *told)
            else:
                done = annotate(paths, options, *told)
        except KeyboardInterrupt:
            print("interrupted; the same command resumes at the next shard", file=sys.stderr)
            return INTERRUPTED
    print(json.dumps(done.data()) if arguments.json else done)
    return 1 if done.broken else 0


def _on_each(
    devices: Sequence[str], paths: Sequence[Path], options: Options, nodes: int, workers: int, *more: str
) -> int:
    """Run one command for each device, with its share of the positions and of the processors.
    more: further arguments."""
    from training.data.reading import count_positions

    shares: list[list[Path]] = [[] for _ in devices[: len(paths)]]
    counts = [0] * len(shares)
    for count, path in sorted(((count_positions(path), path) for path in paths), reverse=True):
        least = counts.index(min(counts))
        shares[least].append(path)
        counts[least] += count
    running: list[subprocess.Popen[bytes]] = []
    try:
        for number, (device, share) in enumerate(zip(devices, shares, strict=False)):
            command = child_command(
                *("training.step", "training", "annotate", *map(str, share)),
                *("--backend", device, "--weights", options.weights, "--nodes", str(nodes)),
                *("--workers", str(workers), "--threads", str(options.threads), *more),
            )
            with share_of_processors(number, len(shares)):
                running.append(subprocess.Popen(command, stdin=subprocess.PIPE))
        return max(process.wait() for process in running)
    finally:
        for process in running:
            process.terminate()
            process.wait()


def _with_network(options: Options) -> Options:
    """Return the options, with the presets' prior if a network is missing. Raises BackendError."""
    from evaluator.backends import needs_network
    from training.config import TargetSettings

    if options.weights or options.evaluator or not needs_network(options.backend.partition(":")[0]):
        return options
    return options.changed(weights=TargetSettings().prior)


def _with_constants(options: Options, network: str) -> Options:
    """Return the options with a network's search constants. Raises TrainingError."""
    from engine.search.player.network_constants import CONSTANTS
    from training.data.annotations import prior_identity

    return options.changed(**CONSTANTS.get(prior_identity(network), {}))
