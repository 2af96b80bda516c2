"""`python -m evaluator verify`: a backend's outputs against the float64 reference."""

from __future__ import annotations

import argparse
import json
import sys
from itertools import pairwise

import numpy as np
from rich.console import Console
from rich.table import Table

from evaluator.backends import BackendError, open_backend
from evaluator.backends.probe import probe_batch
from evaluator.backends.reference import ReferenceBackend
from evaluator.loading import parse_backend
from evaluator.network import SHIPPED_NETWORK, NetworkError, load_network
from evaluator.network.random_network import SHAPES, random_network
from evaluator.network.spec import NetworkSpec
from protocol.batch import EvaluationBatch, PositionBatch

HELP = "compare a backend with the float64 reference; the exit status is 1 if it is off by too much"

LOGITS, WDL, BEST_MOVES = 0.02, 5e-3, 0.99
"""Limits: the logits' largest error, absolute or, if that is more, in parts of half their spread; the largest
error of a probability; the share of positions with the same best move."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--network",
        action="append",
        metavar="FILE",
        help=f"network file, or random:SHAPE with SHAPE one of {', '.join(SHAPES)}; may be repeated "
        "(default: the shipped network)",
    )
    parser.add_argument(
        "--backend", default="gpu", metavar="NAME", help="with options, as gpu:precision=fp32 (default gpu)"
    )
    parser.add_argument("--positions", type=int, default=64, metavar="N", help="(default %(default)d)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    if arguments.positions < 1:
        print("error: --positions must be at least 1", file=sys.stderr)
        return 2
    rows = []
    try:
        name, options = parse_backend(arguments.backend)
        for file in arguments.network or [str(SHIPPED_NETWORK)]:
            network = network_of(file)
            with open_backend(name, network, **options) as backend:
                batch = probe_batch(min(arguments.positions, backend.max_batch), seed=11)
                rows.append(compare(network, backend.evaluate(batch), batch) | {"device": backend.device})
    except (NetworkError, BackendError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps(rows))
    else:
        table = Table("network", "logits", "spread", "W D L", "moves left", "same best move", "")
        for row in rows:
            table.add_row(
                str(row["network"]),
                *(f"{row[key]:.2g}" for key in ("logits", "spread", "wdl", "moves_left")),
                f"{row['same_best_move']:.1%}",
                "ok" if row["ok"] else "OFF",
            )
        console = Console(markup=False, highlight=False)
        console.print(table)
        console.print(f"largest errors of {rows[0]['device']}, {arguments.positions} made-up positions")
    return 0 if all(row["ok"] for row in rows) else 1


def compare(
    network: NetworkSpec, result: EvaluationBatch, batch: PositionBatch
) -> dict[str, float | str | bool]:
    """The largest errors of a result, and whether they are within the limits."""
    expected = ReferenceBackend(network, dtype="float64").evaluate(batch)
    offsets = batch.move_offsets
    same = [
        int(np.argmax(result.logits[a:b])) == int(np.argmax(expected.logits[a:b]))
        for a, b in pairwise(offsets)
    ]
    logits = float(np.abs(result.logits - expected.logits).max())
    spread = float(np.ptp(expected.logits))
    wdl = float(np.abs(result.wdl - expected.wdl).max())
    share = float(np.mean(same))
    return {
        "network": network.name,
        "logits": logits,
        "spread": spread,
        "wdl": wdl,
        "moves_left": float(np.abs(result.moves_left - expected.moves_left).max()),
        "same_best_move": share,
        "ok": logits <= max(LOGITS, 0.01 * spread) and wdl <= WDL and share >= BEST_MOVES,
    }


def network_of(text: str) -> NetworkSpec:
    """A file's network, or random:SHAPE. Raises NetworkError."""
    if text.startswith("random:"):
        return random_network(text.removeprefix("random:"))
    return load_network(text)
