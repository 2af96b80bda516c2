"""What the service costs: positions per second of a bare backend and of the same one through the evaluator
process, with two requests in flight.

    python benchmarks/service_overhead.py [--seconds 2] [--network FILE]

The `random` backend computes next to nothing, so that its row is the limit of the service itself.
"""

from __future__ import annotations

import argparse
import sys

from figures import json_of


def measure(
    backend: str, batches: str, seconds: float, network: str | None, through_service: bool
) -> dict[int, float]:
    """The curve that `python -m evaluator bench --json` reports."""
    command = [sys.executable, "-m", "evaluator", "bench", "--json", "--backend", backend]
    command += ["--batch", batches, "--time-limit", str(seconds)]
    command += ["--service"] if through_service else []
    command += ["--network", network] if network else []
    return {point["batch"]: point["positions_per_second"] for point in json_of(command)["curve"]}


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="per batch size (default: 2)")
    parser.add_argument("--network", metavar="FILE", help="lc0 network file (default: the shipped one)")
    arguments = parser.parse_args()
    print("| backend | batch | bare, positions/s | through the service | share |")
    print("|---|---|---|---|---|")
    for backend, batches in (("random", "64,256,512,1024"), ("onnx", "8,32,128")):
        seconds = arguments.seconds * len(batches.split(","))
        network = arguments.network if backend == "onnx" else None
        bare = measure(backend, batches, seconds, network, False)
        served = measure(backend, batches, seconds, network, True)
        for batch, rate in bare.items():
            share = 100 * served[batch] / rate
            print(f"| {backend} | {batch} | {rate:,.0f} | {served[batch]:,.0f} | {share:.0f} % |")


if __name__ == "__main__":
    main()
