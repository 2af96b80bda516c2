"""Bytes of memory per visited node, in a middle game with about 35 legal moves.

    python benchmarks/memory.py [--nodes N]

The growth of the process while the tree grows, with an evaluation cache of the default size and without, and
what the tree itself counts.
"""

from __future__ import annotations

import argparse

import psutil
from figures import Figure, print_figures

from engine._core import Batch, Game, SearchParams, Tree
from engine.options import Options

POSITION = "r1bq1rk1/pp2bppp/2n1pn2/3p4/3P4/2NBPN2/PP3PPP/R1BQ1RK1 w - - 0 9"


def measure(nodes: int, cache_bytes: int) -> tuple[float, float]:
    """Bytes per node by the system's count and by the tree's own."""
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=1_000_000)
    nodes = parser.parse_args().nodes
    with_cache, _ = measure(nodes, Options().hash << 20)
    without_cache, own = measure(nodes, 0)
    print_figures(
        [
            Figure("bytes per node, tree and cache", with_cache, 300, at_least=False),
            Figure("bytes per node, tree alone", without_cache, 300, at_least=False),
            Figure("bytes per node, the tree's own count", own, 300, at_least=False),
        ]
    )


if __name__ == "__main__":
    main()
