# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory in bytes per visited node, in a middle game with about 35 legal moves.

    python -m benchmarks.search.memory [--nodes N] [--json]

Reports the growth of the process while the tree grows, and the tree's count. The evaluation cache has its
default size, or is off. Each tree has its own process.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass

from benchmarks.common.figures import Figure, print_figures
from benchmarks.common.installation import CHECKOUT, REPOSITORY, Installation
from benchmarks.common.processes import CommandError

NODES = 1_000_000


@dataclass(frozen=True, slots=True)
class Growth:
    """Bytes per visited node: of the process according to the system, and of the tree by its count."""

    resident: float
    own: float


def growth(nodes: int, cache_bytes: int, *, installation: Installation = CHECKOUT) -> Growth:
    """Grow a tree in a child process. Raises CommandError."""
    script = str(REPOSITORY / "benchmarks" / "search" / "tree_growth.py")
    command = [*installation.python, script, "--nodes", str(nodes), "--cache-bytes", str(cache_bytes)]
    return Growth(**installation.json_of(command))


def default_cache_bytes(installation: Installation = CHECKOUT) -> int:
    """Return the engine's default cache size according to its UCI options. Raises CommandError."""
    told = installation.output_of(installation.engine, given="uci\nquit\n")
    default = re.search(r"^option name Hash type spin default (\d+)", told, re.MULTILINE)
    if default is None:
        raise CommandError(f"{' '.join(installation.engine)}\nhas no UCI option Hash")
    return int(default[1]) << 20


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    try:
        with_cache = growth(arguments.nodes, default_cache_bytes())
        without_cache = growth(arguments.nodes, 0)
    except CommandError as error:
        raise SystemExit(str(error)) from None
    print_figures(
        [
            Figure("bytes per node, tree and cache", with_cache.resident, 300, at_least=False),
            Figure("bytes per node, tree alone", without_cache.resident, 300, at_least=False),
            Figure("bytes per node, the tree's own count", without_cache.own, 300, at_least=False),
        ],
        as_json=arguments.json,
    )


if __name__ == "__main__":
    main()
