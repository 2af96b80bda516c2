# SPDX-License-Identifier: GPL-3.0-or-later
"""Efficiency of a search: its evaluations per second, relative to the evaluator's rate.

    python -m benchmarks.search.search_efficiency [--weights FILE] [--backend NAME] [--seconds S] [--rounds N]

The evaluator's rate is that of the bare backend, without service and sockets, in batches of the service's
recommended size, with its best number in flight. Search and backend alternate every few seconds, because
other work on the machine changes both; the figure is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import statistics

from benchmarks.common.figures import Figure, print_figures
from benchmarks.common.plain_backend import backend_rate
from benchmarks.common.tuned import tuned
from engine import Engine
from evaluator.backends import open_backend
from evaluator.network import SHIPPED_NETWORK, load_network
from protocol import EvaluatorClient

POSITIONS = (
    None,
    "r1bqkb1r/p4pp1/1pn1pn2/1Np1p2p/2P5/3P2P1/PP2PPBP/R1BQK2R w KQkq - 0 9",
    "r3r1k1/2p3pp/pp3p1n/1bpP4/6P1/P1Q1P2P/qBN2PB1/R2K4 b - - 5 25",
)


def search_rate(engine: Engine, fen: str | None, seconds: float) -> tuple[float, float]:
    """Return evaluations per second and positions per batch of a warmed-up search."""
    engine.new_game()
    engine.position(fen)
    engine.analyse(movetime=seconds * 500)  # a small tree cannot fill batches
    report = engine.analyse(movetime=seconds * 1000).report
    return report.evaluations / report.seconds, report.mean_batch


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--weights", default=str(SHIPPED_NETWORK), help="network file (default: wavefront-cpu)"
    )
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each turn (default 2)")
    parser.add_argument("--rounds", type=int, default=6)
    arguments = parser.parse_args()

    ratios = []
    with (
        Engine(weights=arguments.weights, backend=tuned(arguments.backend)) as engine,
        EvaluatorClient(engine.evaluator_address) as client,
        open_backend(arguments.backend, load_network(arguments.weights)) as backend,
    ):
        size = client.recommended_batch
        print(f"{client.network.name} on {client.network.device}, recommended batch {size}")
        backend_rate(backend, size, arguments.seconds)
        for turn in range(arguments.rounds):
            own = backend_rate(backend, size, arguments.seconds)
            searched, mean_batch = search_rate(engine, POSITIONS[turn % len(POSITIONS)], arguments.seconds)
            own = (own + backend_rate(backend, size, arguments.seconds)) / 2
            ratios.append(searched / own)
            print(
                f"evaluator {own:7,.0f}/s   search {searched:7,.0f}/s   mean batch {mean_batch:5.1f}   "
                f"{100 * ratios[-1]:5.1f} %",
                flush=True,
            )
    print_figures([Figure("% of the evaluator's rate", 100 * statistics.median(ratios), 95)])


if __name__ == "__main__":
    main()
