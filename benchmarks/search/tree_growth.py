# SPDX-License-Identifier: GPL-3.0-or-later
"""Grow a search tree to a number of nodes and print its memory as JSON: run by memory.py.

It imports only the native core, so it works with any installation's. It runs in its own process, so that no
memory freed by an earlier tree is reused.
"""

from __future__ import annotations

import argparse
import json

import psutil

from engine._core import Batch, Game, SearchParams, Tree

POSITION = "r1bq1rk1/pp2bppp/2n1pn2/3p4/3P4/2NBPN2/PP3PPP/R1BQ1RK1 w - - 0 9"


def grow(nodes: int, cache_bytes: int) -> tuple[float, float]:
    """Return bytes per visited node, by the system's count and by the tree's."""
    params = SearchParams()
    params.cache_bytes = cache_bytes
    process = psutil.Process()
    before = process.memory_info().rss
    tree, batch = Tree(params), Batch(256)
    tree.set_position(Game(POSITION))
    while (info := tree.root_info()).visits < nodes:
        tree.collect(batch, 256)
        tree.apply_random(batch)
    return (process.memory_info().rss - before) / info.visits, info.memory_bytes / info.visits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--cache-bytes", type=int, required=True, help="of the evaluation cache")
    arguments = parser.parse_args()
    resident, own = grow(arguments.nodes, arguments.cache_bytes)
    print(json.dumps({"resident": resident, "own": own}))


if __name__ == "__main__":
    main()
