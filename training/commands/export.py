# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m training export`: write and verify the mean of a run's weights as an lc0 file."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from protocol.common.outputs import OVERWRITE, guard_output
from training.errors import TrainingError, require_torch

HELP = "write a run's network as an lc0 file, compared with the reference backend"


ARGUMENTS = {
    "run_folder RUN": "folder of a run",
    "--output FILE": "file to write (default: network.pb.gz in the folder)",
    **OVERWRITE,
    "--policy-temperature T = 1.0": "multiply the policy's logits, so that this PolicyTemperature gives "
    "the trained priors (default: %(default)g)",
    "--license TEXT = ''": "licence that is written into the file",
    "--int8": "report what an int8 pass on a CPU changes",
    "--last": "export the last weights, not their mean",
    "--json": "print JSON",
}


def run(arguments: argparse.Namespace) -> int:
    require_torch()
    if arguments.policy_temperature <= 0:
        raise TrainingError("--policy-temperature must be above 0")
    from training.export import export_network, int8_told
    from training.run.checkpoint import NAME as CHECKPOINT
    from training.run.checkpoint import network_of_run
    from training.run.run import NETWORK

    folder = Path(arguments.run_folder)
    output = Path(arguments.output) if arguments.output else folder / NETWORK
    own_file = output.resolve() == (folder / NETWORK).resolve()
    guard_output(output, [folder / CHECKPOINT], overwrite=arguments.overwrite or own_file)
    network = network_of_run(folder, last=arguments.last)
    exported = export_network(
        network, output, policy_temperature=arguments.policy_temperature, license=arguments.license
    )
    int8 = int8_told(output) if arguments.int8 else None
    if arguments.json:
        facts: dict[str, Any] = {
            "logits": exported.logits,
            "encoding": exported.encoding,
            "bytes": exported.bytes,
        }
        print(json.dumps({"file": str(exported.path), **facts, **({"int8": int8} if int8 else {})}))
    else:
        print(exported if int8 is None else f"{exported}\n{int8}")
    return 0
