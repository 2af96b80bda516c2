# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m training init`: write an initial settings file; verify the network to start from."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from protocol.common.files import write_atomically
from protocol.common.outputs import OVERWRITE, guard_output, named_files
from protocol.common.printing import failing_as
from training.errors import TrainingError, require_torch

HELP = "write the settings file of a new run"


ARGUMENTS = {
    "config CONFIG.toml": "file to write; - is standard output",
    "--preset {cpu,gpu,next,tiny} = cpu": "preset (default: %(default)s)",
    "--from NET.pb.gz": "start from this network: a file, wavefront-cpu or wavefront-gpu",
    "--data FOLDER+": "folders of shards",
    "--output FOLDER": "folder of the run",
    **OVERWRITE,
}


def run(arguments: argparse.Namespace) -> int:
    from training.presets import PRESETS, config_text

    heading, config = PRESETS[arguments.preset]
    start = getattr(arguments, "from")
    if start:
        require_torch()
        print(_checked(start), file=sys.stderr)
        heading = f"Training continues from {start}."
        config = replace(config, model=replace(config.model, start=start))
        config = replace(config, targets=replace(config.targets, prior=start))
    if arguments.data:
        config = replace(config, data=replace(config.data, main=tuple(arguments.data)))
    if arguments.output:
        config = replace(config, output=arguments.output)
    text = config_text(config, heading)
    if arguments.config == "-":
        print(text, end="")
        return 0
    path = Path(arguments.config)
    guard_output(path, named_files([start]), overwrite=arguments.overwrite)
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
