"""Speed of the search alone: nodes per second with evaluations that cost next to nothing.

    python benchmarks/search_speed.py [--seconds S]

Inside the process (one thread, batches of 256) and through the evaluator process (its `random` backend). The
peer's figure is lc0 0.33-dev's with its random backend, one search thread, minibatch 256, on such a machine.
"""

from __future__ import annotations

import argparse

from figures import RUN_ENGINE, Figure, json_of, print_figures

PEER = "lc0 121,000-127,000"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="for each of the 12 positions (default 1)")
    movetime = str(round(parser.parse_args().seconds * 1000))
    bench = [*RUN_ENGINE, "bench", "--batch", "256", "--movetime", movetime, "--json"]
    inside = json_of([*bench, "--in-process"])
    through = json_of([*bench, "--backend", "random"])
    print_figures(
        [
            Figure("nodes/s inside the process", inside["nodes_per_second"], 150_000, peer=PEER),
            Figure("nodes/s through the evaluator", through["nodes_per_second"], 100_000),
        ]
    )
    for name, result in (("inside", inside), ("through", through)):
        rate, batch = result["evaluations_per_second"], result["mean_batch"]
        print(f"{name}: {rate:,.0f} evaluations/s, mean batch {batch:.0f}")


if __name__ == "__main__":
    main()
