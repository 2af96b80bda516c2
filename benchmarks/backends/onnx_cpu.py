# SPDX-License-Identifier: GPL-3.0-or-later
"""Speed of the onnx backend on the CPU: positions per second for each batch size, float32.

    python -m benchmarks.backends.onnx_cpu [--threads N] [--batch N[,N...]] [--seconds S] [NETWORK ...]

Measures the backend's whole `evaluate`: masks in, logits of 35 legal moves out. Takes the fastest of the runs
within S seconds per batch, because other programs only ever make a run slower. Default networks: the shipped
one and random ones of the sizes that lc0 was measured with (0.33-dev, blas backend, 2 threads on 2 cores: the
last column).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.common.figures import Figure, print_figures
from benchmarks.common.installation import REPOSITORY
from evaluator.backends import Backend, open_backend
from evaluator.backends.common.probe import probe_batch
from evaluator.network import SHIPPED_NETWORK, NetworkSpec, load_network
from evaluator.network.describe import cost_of
from evaluator.network.random_network import random_network

# Milliseconds per batch: lc0 0.33-dev, see ../shared/data/latency_curves.json.
LC0 = {
    "attention-128x4": {1: 0.6915, 8: 5.174, 32: 20.62, 64: 42.01},
    "resnet-64x4": {1: 0.2843, 8: 2.30, 32: 9.795, 64: 20.56},
}
GOLDEN = REPOSITORY.parent / "shared" / "lc0_golden" / "nets"
TO_REACH = 1650.0


def seconds_per_batch(backend: Backend, count: int, limit: float) -> float:
    batch = probe_batch(count)
    backend.evaluate(batch)
    best, end = float("inf"), time.perf_counter() + limit
    while (start := time.perf_counter()) < end:
        backend.evaluate(batch)
        best = min(best, time.perf_counter() - start)
    return best


def measure(network: NetworkSpec, threads: int | None, batches: list[int], limit: float) -> dict[int, float]:
    """Print one network's table and return positions/s by batch."""
    with open_backend("onnx", network, threads=threads) as backend:
        flop = cost_of(network).flop
        print(f"\n{network.name} ({flop / 1e6:.0f} MFLOP per position) on {backend.device}")
        print(f"{'batch':>6} {'ms':>9} {'positions/s':>12} {'GFLOP/s':>8} {'lc0':>8}")
        speeds = {}
        for count in batches:
            seconds = seconds_per_batch(backend, count, limit)
            speeds[count] = speed = count / seconds
            peer = LC0.get(network.name, {}).get(count)
            lc0 = f"{count / peer * 1000:8,.0f}" if peer else f"{'-':>8}"
            print(f"{count:6d} {seconds * 1000:9.2f} {speed:12,.0f} {speed * flop / 1e9:8.0f} {lc0}")
    return speeds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", type=Path, metavar="NETWORK")
    parser.add_argument("--threads", type=int, help="default: one per core")
    parser.add_argument("--batch", default="1,2,4,8,16,32,64,128,256", help="sizes, comma-separated")
    parser.add_argument("--seconds", type=float, default=1.0, help="per batch size (default 1)")
    arguments = parser.parse_args()
    batches = [int(size) for size in arguments.batch.split(",")]
    if arguments.networks:
        networks = [load_network(path) for path in arguments.networks]
    else:
        networks = [load_network(SHIPPED_NETWORK), *map(random_network, LC0)]
        networks += [load_network(path) for path in sorted(GOLDEN.glob("attn_128x4_*.pb.gz"))]
    at_32 = []
    for network in networks:
        speed = measure(network, arguments.threads, batches, arguments.seconds).get(32)
        if speed is not None and "128x4" in network.name:
            at_32.append(Figure(f"{network.name}, batch 32, positions/s", speed, TO_REACH, peer="lc0 1,552"))
    if at_32:
        print()
        print_figures(at_32)


if __name__ == "__main__":
    main()
