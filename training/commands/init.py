# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m training init`: write an initial settings file; verify the network to start from."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from protocol.common.files import write_atomically
from protocol.common.outputs import add_overwrite_flag, guard_output, named_files
from protocol.common.printing import failing_as
from training.errors import TrainingError, require_torch

HELP = "write the settings file of a new run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG.toml", help="file to write; - is standard output")
    parser.add_argument(
        "--preset",
        default="cpu",
        choices=("cpu", "gpu", "next", "tiny"),
        help="preset (default: %(default)s)",
    )
    parser.add_argument(
        "--from",
        dest="start",
        metavar="NET.pb.gz",
        help="start from this network: a file, wavefront-cpu or wavefront-gpu",
    )
    parser.add_argument("--data", nargs="+", default=[], metavar="FOLDER", help="folders of shards")
    parser.add_argument("--output", metavar="FOLDER", help="folder of the run")
    add_overwrite_flag(parser)


def run(arguments: argparse.Namespace) -> int:
    from training.presets import PRESETS, config_text

    heading, config = PRESETS[arguments.preset]
    if arguments.start:
        require_torch()
        print(_checked(arguments.start), file=sys.stderr)
        heading = f"Training goes on from {arguments.start}."
        config = replace(config, model=replace(config.model, start=arguments.start))
        config = replace(config, targets=replace(config.targets, prior=arguments.start))
    if arguments.data:
        config = replace(config, data=replace(config.data, main=tuple(arguments.data)))
    if arguments.output:
        config = replace(config, output=arguments.output)
    text = config_text(config, heading)
    if arguments.config == "-":
        print(text, end="")
        return 0
    path = Path(arguments.config)
    guard_output(path, named_files([arguments.start]), overwrite=arguments.overwrite)
    with failing_as(TrainingError, f"cannot write {path}"):
        write_atomically(path, text.encode("utf-8"))
    return 0


def _checked(start: str) -> str:
    """Convert a network to PyTorch and back, and return its description. Raises TrainingError."""
    from evaluator.network import load_network
    from training.export import compared
    from training.model.initial import count_parameters
    from training.model.network import AttentionNetwork

    network = AttentionNetwork(load_network(start))
    off = compared(network, network.template)
    return f"{start}: {count_parameters(network):,} parameters, logits within {off:.1e} of the reference"
