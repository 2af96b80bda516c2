# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m training gate`: decide by a match whether a new network replaces another."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from protocol.common.commands import Declared
from protocol.common.files import write_atomically
from protocol.common.outputs import OVERWRITE, guard_output, same_file
from protocol.common.processes import INTERRUPTED

HELP = (
    "play a match between a new network and another; the exit status is 0 if an SPRT accepts the new one, "
    "3 if not"
)
REFUSED = 3


ARGUMENTS: Declared = {
    "network NET.pb.gz": "new network: a file or an included one",
    "--against FILE = wavefront-cpu": "other network (default: wavefront-cpu)",
    "--constants-of FILE": "network whose search constants both players have (default: that of --against)",
    "": {
        "--nodes N = 400": "nodes per move (default: %(default)d)",
        "--tc CLOCK": "a clock instead of nodes, such as 3+0.03",
    },
    "--games N = 1000": "maximum number of games (default: %(default)d)",
    "--sprt KEY=VALUE,… = elo0=0,elo1=15": "SPRT (default: %(default)s)",
    "--output FOLDER": "folder of match and gate.json (default: gate, next to the network)",
    "--promote FILE": "copy the network to this file if it is accepted; it may be that of --against",
    **OVERWRITE,
    "--match* FLAG": "further argument of `wavefront match`; may be repeated",
    "--json": "print gate.json",
}


def run(arguments: argparse.Namespace) -> int:
    from evaluator.network import network_file
    from training.gate import VERDICT, Promotion, is_verdict

    network = Path(arguments.network)
    folder = Path(arguments.output) if arguments.output else network.parent / "gate"
    gate = Promotion(
        network,
        arguments.against,
        ("--tc", arguments.tc) if arguments.tc else ("--nodes", str(arguments.nodes)),
        arguments.games,
        arguments.sprt,
        folder,
        arguments.constants_of or arguments.against,
        (*arguments.match, *(["--overwrite"] if arguments.overwrite else [])),
    )
    new = network_file(network)
    guard_output(folder / VERDICT, [new], overwrite=arguments.overwrite, own=is_verdict)
    if arguments.promote:
        against = network_file(arguments.against)
        promoted = Path(arguments.promote)
        replaces = arguments.overwrite or same_file(promoted, against)
        guard_output(promoted, [new, folder / VERDICT], overwrite=replaces)
    try:
        verdict = gate.play()
    except KeyboardInterrupt:
        print("interrupted; the same command resumes the match", file=sys.stderr)
        return INTERRUPTED
    if verdict["accepted"] and arguments.promote:
        write_atomically(promoted, new.read_bytes())
    print(json.dumps(verdict) if arguments.json else _sentence(verdict))
    return 0 if verdict["accepted"] else REFUSED


def _sentence(verdict: dict[str, Any]) -> str:
    elo, match = verdict["elo"], verdict["match"]
    shown = "" if elo["value"] is None else f"{elo['value']:+.0f} Elo"
    if elo["low"] is not None and elo["high"] is not None:
        shown += f" ({elo['low']:+.0f} to {elo['high']:+.0f})"
    word = "accepted" if verdict["accepted"] else "not accepted"
    return f"{verdict['network']} is {word} after {match['games']} games: {shown or 'no estimate of Elo'}"
