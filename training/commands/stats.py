# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m training stats`: read and check shards, and print their totals."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from protocol.common.printing import reason

HELP = "check shards and print what they hold"


ARGUMENTS = {
    "paths PATH+": "shards or folders of them",
    "--json": "print JSON",
}


def run(arguments: argparse.Namespace) -> int:
    from engine.apps.shards import ShardError, read_shard
    from training.data.reading import shards_of
    from training.data.statistics import Statistics

    statistics = Statistics()
    broken: dict[str, str] = {}
    for path in shards_of(arguments.paths):
        try:
            statistics.add(read_shard(path), path.stat().st_size)
        except (ShardError, OSError) as error:
            broken[str(path)] = reason(error)
            print(f"{path}: {reason(error)}", file=sys.stderr)
    data = statistics.data() | {"broken": broken}
    if arguments.json:
        print(json.dumps(data))
    else:
        _print(data)
    return 1 if broken else 0


def _print(data: dict[str, Any]) -> None:
    positions = data["positions"] + data["branches"]
    print(
        f"{data['shards']} shards, {data['games']:,} games, {data['positions']:,} positions and "
        f"{data['branches']:,} beside them, {data['bytes'] / max(1, positions):.1f} bytes each"
    )
    results = data["results"]
    print(
        f"White +{results['white_won']:,} ={results['draw']:,} -{results['black_won']:,}, "
        f"{results['unknown']:,} unknown; {data['mean_plies']:.1f} plies a game"
    )
    if data["labelled"]:
        print(
            f"labelled: best move played {data['best_played']:.1%}, "
            f"the first line {data['best_is_first_line']:.1%}; "
            f"beyond 600 centipawns {data['beyond_600']:.1%}, mates {data['mates']:.1%}"
        )
    if data["annotated"]:
        print(f"annotated with a network's policy and W D L: {data['annotated']:,}")
    if data["searched"]:
        print(f"searched: {data['visited_moves']:.1f} moves with visits")
