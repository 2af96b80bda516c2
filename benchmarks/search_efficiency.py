"""How much of the evaluator's speed a search gets: its evaluations per second over the evaluator's own.

    python benchmarks/search_efficiency.py [--weights FILE] [--backend NAME] [--seconds S]

The evaluator's rate at its recommended batch size is measured by its own bench, just before and just after
the search, because other work on the machine changes it.
"""

from __future__ import annotations

import argparse
import sys

from figures import RUN_ENGINE, Figure, json_of, print_figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weights", default="", help="network file (default: the shipped network)")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each position (default 4)")
    arguments = parser.parse_args()

    bench = [
        sys.executable,
        "-m",
        "evaluator",
        "bench",
        "--json",
        "--time-limit",
        "20",
        "--backend",
        arguments.backend,
    ]
    if arguments.weights:
        bench += ["--network", arguments.weights]
    search = [*RUN_ENGINE, "bench", "--json", "--movetime", str(round(arguments.seconds * 1000))]
    search += ["--backend", arguments.backend, "--weights", arguments.weights]

    before = json_of(bench)
    found = json_of(search)
    after = json_of(bench)
    at_knee = [
        next(p["positions_per_second"] for p in curve["curve"] if p["batch"] == curve["knee"])
        for curve in (before, after)
    ]
    rate = found["evaluations_per_second"]
    print(f"{before['network']} on {before['device']}, batches of {before['knee']} and {after['knee']}")
    print(f"evaluator: {at_knee[0]:.0f} and {at_knee[1]:.0f} positions/s")
    print(
        f"search: {rate:.0f} evaluations/s, {found['nodes_per_second']:.0f} nodes/s, "
        f"mean batch {found['mean_batch']:.1f}"
    )
    print_figures([Figure("% of the evaluator's rate", 100 * rate / (sum(at_knee) / 2), 95)])


if __name__ == "__main__":
    main()
