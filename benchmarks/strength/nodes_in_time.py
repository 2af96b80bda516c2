# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes of searches by time for each batching method: real time, with a sleeping device.

    python -m benchmarks.strength.nodes_in_time [WAY …] [--device-ms 0.15] [--each-us 1.3] [--move-ms 65]
        [--kept 3000] [--rounds 4] [--backend BACKEND] [--json]

Each way searches the positions of `bench` for --move-ms, from trees of --kept visits. The evaluator is a
process whose device takes --device-ms per batch and --each-us per position (timed_evaluator.py; the defaults
are the shipped network on an H200). With --backend gpu the engine starts its evaluator, with the shipped
network on a real device. WAY is one of `batch_strength.py --list` or options written Key=Value,Key=Value.
Reports medians: final nodes, calls and evaluated positions. Other programs disturb searches, so the ways
alternate.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from benchmarks.latency.call_latency import begin, evaluator
from benchmarks.strength.batch_strength import in_way
from engine.commands.bench import POSITIONS
from engine.options import Options
from engine.search.limits import Limits
from engine.session import Session

READY_S = 180.0
"""Timeout for an evaluator's start: on its first start a GPU is tuned."""

Figures = tuple[int, int, int]
"""Nodes, calls and evaluated positions of a search."""


def session_of(way: str, evaluator: Options) -> Session:
    """Return a session that searches in that way for its full time. evaluator: options of its evaluator."""
    session = Session(in_way(way, replace(evaluator, smart_pruning_factor=0.0)))
    session.ready(READY_S)
    return session


def searches(session: Session, kept: int, move_ms: int) -> list[Figures]:
    """Search each position and return the figures."""
    found = []
    for fen in POSITIONS:
        begin(session, fen)
        session.search(Limits(nodes=kept))
        report = session.search(Limits(movetime_ms=move_ms))
        found.append((report.nodes, report.batches, report.evaluations))
    return found


def measure(
    ways: Sequence[str], evaluator: Options, kept: int, move_ms: int, rounds: int
) -> dict[str, Figures]:
    """Return the medians of each way, measured alternately."""
    sessions = {way: session_of(way, evaluator) for way in ways}
    found: dict[str, list[Figures]] = {way: [] for way in ways}
    try:
        for _ in range(rounds):
            for way, session in sessions.items():
                found[way] += searches(session, kept, move_ms)
    finally:
        for session in sessions.values():
            session.close()
    return {
        way: (
            int(median(nodes for nodes, _, _ in each)),
            int(median(calls for _, calls, _ in each)),
            int(median(positions for _, _, positions in each)),
        )
        for way, each in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ways", nargs="*", default=["default"], metavar="WAY", help="(default: default)")
    parser.add_argument("--device-ms", type=float, default=0.15, help="of a batch (default 0.15)")
    parser.add_argument("--each-us", type=float, default=1.3, help="of a position in it (default 1.3)")
    parser.add_argument("--move-ms", type=int, default=65, help="of a search (default 65)")
    parser.add_argument("--kept", type=int, default=3000, help="visits of the tree before (default 3,000)")
    parser.add_argument("--rounds", type=int, default=4, help="searches of all positions (default 4)")
    parser.add_argument("--backend", help="a real device: gpu, onnx, …")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    how = arguments.kept, arguments.move_ms, arguments.rounds
    if arguments.backend:
        found = measure(arguments.ways, Options(backend=arguments.backend), *how)
    else:
        with evaluator(arguments.device_ms, ["--each-us", str(arguments.each_us)]) as (_, address):
            found = measure(arguments.ways, Options(evaluator=address), *how)
    if arguments.json:
        names = ("nodes", "calls", "positions")
        print(json.dumps({way: dict(zip(names, each, strict=True)) for way, each in found.items()}))
        return
    print(f"{'way':44} {'nodes':>8} {'calls':>7} {'positions':>10}")
    for way, (nodes, calls, positions) in found.items():
        print(f"{way[:44]:44} {nodes:8,d} {calls:7,d} {positions:10,d}")


if __name__ == "__main__":
    main()
