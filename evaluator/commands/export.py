# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m evaluator export [FILE] OUT.onnx`: exports a network as ONNX for other programs."""

from __future__ import annotations

import argparse

from evaluator.network import load_network, network_file
from protocol.common.outputs import OVERWRITE, guard_output
from protocol.common.printing import ReportedError, failing_as

HELP = "write a network as an ONNX model"


ARGUMENTS = {
    "file FILE? = wavefront-cpu": "network (.pb.gz or .pb), wavefront-cpu or wavefront-gpu (default: "
    "wavefront-cpu)",
    "output OUTPUT:Path": "the .onnx file to write",
    **OVERWRITE,
    "--policy-head NAME": "vanilla, optimistic, soft or opponent",
    "--value-head NAME": "winner, q or st",
}


def run(arguments: argparse.Namespace) -> int:
    from evaluator.backends.onnx.export import export_onnx

    guard_output(arguments.output, [network_file(arguments.file)], overwrite=arguments.overwrite)
    network = load_network(arguments.file, policy_head=arguments.policy_head, value_head=arguments.value_head)
    with failing_as(ReportedError, f"cannot write {arguments.output}"):
        export_onnx(network, arguments.output)
    print(
        f"wrote {arguments.output}: input planes [n, 112, 8, 8]; outputs policy [n, 1858] (raw logits), "
        + ("wdl [n, 3]" if network.value.wdl else "value [n, 1]")
        + (", moves_left [n, 1]" if network.moves_left is not None else "")
    )
    return 0
