# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares batch policies on a latency curve under several loads."""

from __future__ import annotations

import argparse
import json
import math
import sys
from typing import Any

from benchmarks.batching.policies import POLICIES
from benchmarks.batching.simulation import CURVES, Outcome, curve_model, patterns, simulate
from evaluator.scheduling.latency import LatencyModel
from protocol.wire.messages import PRIORITIES


def main() -> int:
    """Print the comparison. Returns 2 for an unreadable curve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--curve",
        default="h200-t82",
        metavar="NAME|FILE",
        help=f"one of {', '.join(CURVES)}, or a file with output of `bench --json` (default: %(default)s)",
    )
    parser.add_argument("--padded", action="store_true", help="the device pads batches to the measured sizes")
    parser.add_argument(
        "--devices", type=int, default=1, help="number of devices with this curve (default: %(default)d)"
    )
    parser.add_argument(
        "--in-flight",
        type=int,
        default=1,
        help="batches that a device accepts concurrently (default: %(default)d)",
    )
    parser.add_argument("--seconds", type=float, default=4.0, help="simulated seconds (default: %(default)g)")
    parser.add_argument("--seed", type=int, default=1, help="random seed (default: %(default)d)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    try:
        model = curve_model(arguments.curve, padded=arguments.padded)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    results = {
        pattern: {
            name: simulate(
                model,
                make(model),
                loads,
                duration_ms=1000 * arguments.seconds,
                seed=arguments.seed,
                in_flight=arguments.in_flight,
                beside=[(model, make(model)) for _ in range(arguments.devices - 1)],
            )
            for name, make in POLICIES.items()
        }
        for pattern, loads in patterns(model).items()
    }
    if arguments.json:
        print(json.dumps({pattern: _plain(outcomes) for pattern, outcomes in results.items()}, indent=1))
    else:
        _print_table(arguments.curve, model, results)
    return 0


def _plain(outcomes: dict[str, Outcome]) -> dict[str, Any]:
    return {
        name: {
            "positions_per_second": round(outcome.positions_per_second, 1),
            "mean_batch": round(outcome.mean_batch, 1),
            "latency_ms": {
                PRIORITIES[rank]: {
                    "mean": _rounded(outcome.mean_ms(rank)),
                    "p99": _rounded(outcome.p99_ms(rank)),
                }
                for rank in outcome.latencies_ms
            },
        }
        for name, outcome in outcomes.items()
    }


def _rounded(milliseconds: float) -> float | None:
    # JSON has no NaN.
    return None if math.isnan(milliseconds) else round(milliseconds, 3)


def _print_table(curve: str, model: LatencyModel, results: dict[str, dict[str, Outcome]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{curve}: knee {model.knee}, {model.throughput(model.knee):.0f} positions/s there")
    for heading in ("load", "policy"):
        table.add_column(heading)
    for heading in ("positions/s", "mean batch", "latency mean / 99 % ms"):
        table.add_column(heading, justify="right")
    for pattern, outcomes in results.items():
        best = max(outcome.positions_per_second for outcome in outcomes.values())
        for index, (name, outcome) in enumerate(outcomes.items()):
            latency = "  ".join(
                f"{PRIORITIES[rank]} {outcome.mean_ms(rank):.1f} / {outcome.p99_ms(rank):.1f}"
                for rank in outcome.latencies_ms
            )
            rate = outcome.positions_per_second
            shown = f"{rate:.0f} ({100 * rate / best:3.0f} %)"
            table.add_row(
                pattern if index == 0 else "",
                name,
                shown,
                f"{outcome.mean_batch:.0f}",
                latency,
                end_section=index == len(outcomes) - 1,
            )
    Console(width=None if sys.stdout.isatty() else 110).print(table)


if __name__ == "__main__":
    sys.exit(main())
