# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m training enlarge`: write a larger network that computes the same as a smaller one."""

from __future__ import annotations

import argparse
from pathlib import Path

from protocol.common.outputs import add_overwrite_flag, guard_output
from training.errors import TrainingError, require_torch

HELP = "write a larger network that computes the same as a smaller one, as a start for training"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("network", metavar="NET.pb.gz", help="network file, wavefront-cpu or wavefront-gpu")
    parser.add_argument(
        "--output", required=True, metavar="FILE", help="file for the larger network (.pb.gz)"
    )
    add_overwrite_flag(parser)
    parser.add_argument(
        "--times",
        type=int,
        default=2,
        metavar="N",
        help="factor of channels, attention heads and the width of smolgen (default: 2)",
    )
    parser.add_argument(
        "--layers", type=int, default=0, metavar="N", help="number of encoders (default: unchanged)"
    )
    parser.add_argument(
        "--policy-scale",
        type=float,
        default=1.0,
        metavar="X",
        help="factor of the policy's logits: the inverse of `export --policy-temperature` (default: 1)",
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="random seed of the differences between copies (default: 1)"
    )


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
        load_network(arguments.network),
        times=arguments.times,
        layers=arguments.layers,
        seed=arguments.seed,
    )
    network = AttentionNetwork(spec)
    print(export_network(network, output, policy_temperature=arguments.policy_scale))
    print(f"{count_parameters(network):,} parameters")
    return 0
