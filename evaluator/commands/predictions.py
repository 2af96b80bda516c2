# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m evaluator kernels --predict`: predicted positions per second of absent GPUs."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from evaluator.gpu.driver.device import CompilationError
from evaluator.gpu.model.cards import CARDS, PREDICTED, Card
from evaluator.gpu.model.prediction import Model, Prediction, unavailable
from evaluator.network.random_network import SHAPES

NETWORKS = ("bt4", "t82")
BATCHES = (1, 8, 32, 256, 1024)

_WIDE = 120
"""Minimum terminal width in columns for all details of a phase."""

_SMALL_SHARE = 0.01
"""Phases with less than this share of a batch's time are summed up."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("predictions (docs/explanation/amd.md)")
    group.add_argument(
        "--predict",
        action="store_true",
        help="print the speed that a model predicts for some cards, in fp16 with own kernels",
    )
    group.add_argument(
        "--card",
        action="append",
        choices=tuple(CARDS),
        help=f"card; may be repeated (default: {', '.join(PREDICTED)})",
    )
    group.add_argument(
        "--network",
        action="append",
        choices=tuple(SHAPES),
        help=f"network; may be repeated (default: {', '.join(NETWORKS)})",
    )
    group.add_argument(
        "--batch",
        action="append",
        type=int,
        metavar="N",
        help=f"batch size; may be repeated (default: {', '.join(map(str, BATCHES))})",
    )
    group.add_argument(
        "--untuned", action="store_true", help="use the tiles of an unmeasured network, not the fastest"
    )
    group.add_argument("--deterministic", action="store_true", help="use the tiles of deterministic=true")


def run(arguments: argparse.Namespace) -> int:
    batches = arguments.batch or list(BATCHES)
    if min(batches) < 1:
        print("error: --batch must be at least 1", file=sys.stderr)
        return 2
    cards = [CARDS[name] for name in arguments.card or PREDICTED]
    missing = {card.name: reason for card in cards if (reason := unavailable(card))}
    for name, reason in missing.items():
        print(f"{name}: {reason}", file=sys.stderr)
    console = Console(markup=False, highlight=False)
    progress = Console(stderr=True)
    facts: list[dict[str, Any]] = []
    for card in cards:
        if card.name in missing:
            continue
        model = Model(card, tuned=not arguments.untuned, deterministic=arguments.deterministic)
        for network in arguments.network or NETWORKS:
            try:
                with progress.status(f"compiling the kernels of {network} for {card.name} …"):
                    found = model.predict(network, batches)
            except CompilationError as error:
                print(f"error: {error}", file=sys.stderr)
                return 1
            if arguments.json:
                facts += [_facts(card, network, each) for each in found]
            else:
                _print(console, card, network, found)
    if arguments.json:
        print(json.dumps(facts))
    return 0 if len(missing) < len(cards) else 1


def _facts(card: Card, network: str, prediction: Prediction) -> dict[str, Any]:
    return {
        "card": card.name,
        "target": card.target,
        "network": network,
        "positions": prediction.positions,
        "milliseconds": prediction.milliseconds,
        "positions_per_second": prediction.positions_per_second,
        "most_positions_per_second": prediction.most_positions_per_second,
        "phases": [asdict(phase) for phase in prediction.phases],
    }


def _print(console: Console, card: Card, network: str, found: list[Prediction]) -> None:
    """Print positions per second by batch size, then the phases of the largest batch."""
    console.print(f"\n{card.name} ({card.target}), {network}, fp16")
    speeds = Table("batch", box=box.SIMPLE)
    for name in ("ms", "positions/s", "at most"):
        speeds.add_column(name, justify="right")
    for each in found:
        speeds.add_row(
            str(each.positions),
            f"{each.milliseconds:.3f}",
            f"{each.positions_per_second:,.0f}",
            f"{each.most_positions_per_second:,.0f}",
        )
    console.print(speeds)
    console.print(_phases(found[-1], wide=console.width >= _WIDE))


def _phases(last: Prediction, *, wide: bool) -> Table:
    """Return the phases of a batch, longest first. wide: add the inputs of each limit, which otherwise only
    --json contains."""
    table = Table(box=box.SIMPLE, title=f"batch {last.positions}", title_justify="left")
    table.add_column("phase", overflow="fold")
    table.add_column("kernel", overflow="fold")
    unit = "matrix unit" if wide else "matrix"
    headings = ("times", "us", "share", "limit", unit, "FLOP/byte", "waves")
    shown = headings if wide else ("share", "limit", unit)
    for heading in shown:
        table.add_column(heading, justify="right", no_wrap=True)
    rest = 0.0
    for phase in sorted(last.phases, key=lambda each: -each.count * each.timing.microseconds):
        timing = phase.timing
        share = phase.count * timing.microseconds / 1000 / last.milliseconds
        if share < _SMALL_SHARE:
            rest += share
            continue
        values = (
            str(phase.count),
            f"{timing.microseconds:.1f}",
            f"{share:.0%}",
            timing.limit,
            f"{timing.shares['matrix unit']:.0%}" if timing.flop else "",
            f"{timing.intensity:.0f}",
            str(timing.waves),
        )
        cells = dict(zip(headings, values, strict=True))
        table.add_row(phase.label, phase.kernel, *(cells[heading] for heading in shown))
    table.add_row("all others", "", *(f"{rest:.0%}" if heading == "share" else "" for heading in shown))
    return table
