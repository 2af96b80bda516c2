# SPDX-License-Identifier: GPL-3.0-or-later
"""Speed of an execution provider of ONNX Runtime next to its CPU provider, in float32 or fp16.

    python -m benchmarks.backends.onnx_providers PROVIDER [NETWORK ...] [--precision P] [--batch N[,N...]]

Both use one CPU thread, and their batches alternate, in ROUNDS rounds. The fastest run counts. Prints
positions per second of wall time, and of processor time, which other programs on the machine lengthen less.
Processor time says nothing of a GPU.
"""

from __future__ import annotations

import argparse
import math
import time

from evaluator.backends import Backend, open_backend
from evaluator.backends.probe import probe_batch
from evaluator.network import SHIPPED_NETWORKS, NetworkSpec, load_network

ROUNDS = 4
SECONDS = 1.0
"""Time of one backend in a round."""


def seconds_of(backend: Backend, size: int) -> tuple[float, float]:
    """Return the shortest wall and processor time of a batch in one round."""
    batch = probe_batch(size)
    backend.evaluate(batch)
    wall = processor = math.inf
    end = time.perf_counter() + SECONDS
    while (start := time.perf_counter()) < end:
        began = time.process_time()
        backend.evaluate(batch)
        processor = min(processor, time.process_time() - began)
        wall = min(wall, time.perf_counter() - start)
    return wall, processor


def measure(network: NetworkSpec, provider: str, precision: str, sizes: list[int]) -> None:
    """Print one network's table."""
    with (
        open_backend("onnx", network, threads=1) as cpu,
        open_backend("onnx", network, threads=1, provider=provider, precision=precision) as other,
    ):
        print(f"\n{network.name}, positions/s (of processor time): {cpu.device} | {other.device}")
        for size in sizes:
            rounds = [[seconds_of(each, size) for each in (cpu, other)] for _ in range(ROUNDS)]
            best = [[min(times) for times in zip(*each, strict=True)] for each in zip(*rounds, strict=True)]
            cells = [f"{size / wall:8.0f} ({size / processor:.0f})" for wall, processor in best]
            print(f"{size:6d} {' | '.join(cells)}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("provider", metavar="PROVIDER", help="as in onnx:provider=PROVIDER")
    parser.add_argument("networks", nargs="*", metavar="NETWORK", default=SHIPPED_NETWORKS)
    parser.add_argument("--precision", default="", help="fp16 or fp32 (default: the provider's)")
    parser.add_argument("--batch", default="1,8,32,128,256", help="sizes (default: %(default)s)")
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.batch.split(",")]
    for network in arguments.networks:
        measure(load_network(network), arguments.provider, arguments.precision, sizes)


if __name__ == "__main__":
    main()
