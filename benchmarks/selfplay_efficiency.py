"""How much of the evaluator's speed many games of self-play get: their evaluations per second over the most
that the evaluator does alone, at whatever batch size that is.

    python benchmarks/selfplay_efficiency.py [--games N] [--nodes N] [--weights FILE] [--backend NAME]
                                             [--seconds S]

The evaluator's curve is measured by its own bench, just before and just after the games, because other work
on the machine changes it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile

from figures import RUN_ENGINE, Figure, json_of, print_figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", type=int, default=64, help="at once (default 64)")
    parser.add_argument("--nodes", type=int, default=400, help="per move (default 400)")
    parser.add_argument("--weights", default="", help="network file (default: the shipped network)")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--seconds", type=float, default=30.0, help="of play (default 30)")
    arguments = parser.parse_args()

    bench = [sys.executable, "-m", "evaluator", "bench", "--json", "--time-limit", "20"]
    bench += ["--backend", arguments.backend]
    if arguments.weights:
        bench += ["--network", arguments.weights]
    with tempfile.TemporaryDirectory() as folder:
        play = [*RUN_ENGINE, "selfplay", "--json", "--games", "0", "--output", folder]
        play += ["--concurrency", str(arguments.games), "--nodes", str(arguments.nodes)]
        play += ["--time-limit", str(arguments.seconds), "--backend", arguments.backend]
        play += ["--weights", arguments.weights]
        before = json_of(bench)
        pace = json_of(play)["pace"]
        after = json_of(bench)
    best = [max(curve["curve"], key=lambda point: point["positions_per_second"]) for curve in (before, after)]
    alone = sum(point["positions_per_second"] for point in best) / 2
    print(f"{before['network']} on {before['device']}")
    for point in best:
        print(
            f"evaluator alone: {point['positions_per_second']:.0f} positions/s in batches of {point['batch']}"
        )
    print(
        f"{pace['concurrency']} games: {pace['evaluations_per_second']:.0f} positions/s, "
        f"mean batch {pace['mean_batch']:.1f}"
    )
    print_figures([Figure("% of the evaluator's best", 100 * pace["evaluations_per_second"] / alone, 90)])


if __name__ == "__main__":
    main()
