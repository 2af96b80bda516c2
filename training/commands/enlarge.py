# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m training enlarge`: write a larger network that computes the same as a smaller one."""

from __future__ import annotations

import argparse
from pathlib import Path

from protocol.common.outputs import OVERWRITE, guard_output
from training.errors import TrainingError, require_torch

HELP = "write a larger network that computes the same as a smaller one, as a start for training"


ARGUMENTS = {
    "network NET.pb.gz": "network file, wavefront-cpu or wavefront-gpu",
    "--output! FILE": "file for the larger network (.pb.gz)",
    **OVERWRITE,
    "--times N = 2": "factor of channels, attention heads and the width of smolgen (default: 2)",
    "--layers N = 0": "number of encoders (default: unchanged)",
    "--policy-scale X = 1.0": "factor of the policy's logits (default: 1)",
    "--seed SEED = 1": "random seed of the differences between copies (default: 1)",
}


def run(arguments: argparse.Namespace) -> int:
    require_torch()
    if arguments.times < 1 or arguments.policy_scale <= 0:
        raise TrainingError("--times must be at least 1, and --policy-scale above 0")
    from evaluator.network import load_network, network_file
    from training.export import export_network
    from training.model.enlarge import enlarged
    from training.model.initial import count_parameters
    from training.model.network import AttentionNetwork

    output = Path(arguments.output)
    guard_output(output, [network_file(arguments.network)], overwrite=arguments.overwrite)
    spec = enlarged(
        load_network(arguments.network), times=arguments.times, layers=arguments.layers, seed=arguments.seed
    )
    network = AttentionNetwork(spec)
    print(export_network(network, output, policy_temperature=arguments.policy_scale))
    print(f"{count_parameters(network):,} parameters")
    return 0
