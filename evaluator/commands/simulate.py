# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m evaluator simulate`: compares batch policies on a latency curve under several loads."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

from evaluator.commands.plotting import guard_plot, plotted
from evaluator.scheduling.compared_policies import POLICIES
from evaluator.scheduling.latency import LatencyModel
from evaluator.scheduling.simulation import CURVES, Outcome, curve_model, patterns, simulate
from protocol.host.outputs import add_overwrite_flag, save_figure
from protocol.messages import PRIORITIES

HELP = "compare the batch policy with others in a discrete-event simulation"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --curve, --padded, --devices, --in-flight, --seconds, --seed, --json and --plot."""
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
    parser.add_argument("--plot", metavar="FILE.png", help="draw the comparison (needs the plot extra)")
    add_overwrite_flag(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the comparison. Returns 2 for an unreadable curve."""
    if not 0.1 <= arguments.seconds <= 3600:
        print("error: --seconds must be from 0.1 to 3600", file=sys.stderr)
        return 2
    if not (1 <= arguments.devices <= 64 and 1 <= arguments.in_flight <= 64):
        print("error: --devices and --in-flight must be from 1 to 64", file=sys.stderr)
        return 2
    guard_plot(arguments.plot, arguments.curve, overwrite=arguments.overwrite)
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
    return plotted(lambda: _plot(arguments.plot, results)) if arguments.plot else 0


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


def _plot(path: str, results: dict[str, dict[str, Outcome]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(13, 5))
    height = 0.8 / len(POLICIES)
    for index, name in enumerate(POLICIES):
        places = [row + index * height for row in range(len(results))]
        axes[0].barh(places, [row[name].positions_per_second for row in results.values()], height, label=name)
        latencies = [row[name].mean_ms(min(row[name].latencies_ms)) for row in results.values()]
        axes[1].barh(places, latencies, height, label=name)
    for axis, title in zip(axes, ("positions/s", "mean latency of the highest class, ms"), strict=True):
        axis.set_title(title)
        axis.set_yticks([row + 0.3 for row in range(len(results))], list(results))
        axis.invert_yaxis()
    axes[1].legend()
    figure.tight_layout()
    save_figure(figure, Path(path), dpi=120)
    pyplot.close(figure)
