# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m evaluator random-network SHAPE OUT`: writes a network with random weights, for tests and
benchmarks."""

from __future__ import annotations

import argparse

from evaluator.network.describe import cost_of
from evaluator.network.random_network import SHAPES, random_network
from evaluator.network.schema import WeightsEncoding
from evaluator.network.writer import write_network
from protocol.common.outputs import OVERWRITE, guard_output
from protocol.common.printing import ReportedError, failing_as

HELP = "write an lc0 network with random weights"


ARGUMENTS = {
    "shape SHAPE": ", ".join(SHAPES),
    "output OUT:Path": "the file to write (.pb.gz or .pb)",
    "--seed SEED = 0": "random seed (default: 0)",
    f"--encoding {{{','.join(each.name.lower() for each in WeightsEncoding)}}} = linear16": "encoding of the "
    "weights in the file (default: linear16)",
    **OVERWRITE,
}


def run(arguments: argparse.Namespace) -> int:
    guard_output(arguments.output, overwrite=arguments.overwrite)
    network = random_network(arguments.shape, arguments.seed)
    with failing_as(ReportedError, f"cannot write {arguments.output}"):
        write_network(
            network,
            arguments.output,
            encodings=(WeightsEncoding[arguments.encoding.upper()],),
            license="random weights, no license",
        )
    cost = cost_of(network)
    print(
        f"wrote {arguments.output}: {cost.parameters:,} parameters, {cost.flop / 1e9:.3f} GFLOP per position"
    )
    return 0
