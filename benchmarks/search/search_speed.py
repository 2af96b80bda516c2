# SPDX-License-Identifier: GPL-3.0-or-later
"""Speed of the search alone: nodes per second with almost free evaluations.

    python -m benchmarks.search.search_speed [--seconds S] [--json]

Measured in-process (one thread, batches of 256) and through the evaluator process (its `random` backend). The
peer is lc0 0.33-dev with its random backend, one search thread, minibatch 256, on such a machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from benchmarks.common.figures import Figure, print_figures
from benchmarks.common.installation import CHECKOUT, Installation
from benchmarks.common.processes import CommandError

PEER = "lc0 121,000-127,000"
POSITIONS = 12
IN_PROCESS = ("--in-process", "--batch", "256")
THROUGH_EVALUATOR = ("--backend", "random", "--batch", "256")


def search(
    flags: Sequence[str], seconds: float, *, installation: Installation = CHECKOUT
) -> dict[str, float]:
    """Return the report of `wavefront bench --json`. seconds: per position (12). Raises CommandError."""
    movetime = str(max(1, round(seconds * 1000)))
    command = [*installation.engine, "bench", "--movetime", movetime, "--json", *flags]
    report: dict[str, float] = installation.json_of(command)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="for each of the 12 positions (default 1)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    try:
        inside = search(IN_PROCESS, arguments.seconds)
        through = search(THROUGH_EVALUATOR, arguments.seconds)
    except CommandError as error:
        raise SystemExit(str(error)) from None
    print_figures(
        [
            Figure("nodes/s inside the process", inside["nodes_per_second"], 150_000, peer=PEER),
            Figure("nodes/s through the evaluator", through["nodes_per_second"], 100_000),
        ],
        as_json=arguments.json,
    )
    if arguments.json:
        return
    for name, result in (("inside", inside), ("through", through)):
        rate, batch = result["evaluations_per_second"], result["mean_batch"]
        print(f"{name}: {rate:,.0f} evaluations/s, mean batch {batch:.0f}")


if __name__ == "__main__":
    main()
