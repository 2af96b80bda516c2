# SPDX-License-Identifier: GPL-3.0-or-later
"""Build, verify and time the gpu backend on the networks of docs/lab/gpu-performance.md.

    python -m benchmarks.backends.gpu [--shapes t82,bt4,t80] [--batches 1,8,32,128,256,512,1024]
        [--golden FOLDER]

Prints for each network: errors against the float64 reference, milliseconds of the computation alone (graph
replays, CUDA or HIP events), and of `evaluate` with two batches in flight, next to lc0's cuda-fp16 on one
H200. With --profile BATCH, also the time of every launch of one batch, summed by label.
"""

from __future__ import annotations

import argparse
import json
import logging
import threading
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

from evaluator.backends.gpu import GpuBackend
from evaluator.backends.gpu import open as open_gpu
from evaluator.backends.probe import probe_batch
from evaluator.backends.reference import ReferenceBackend
from evaluator.gpu.plan.program import Launch
from evaluator.network import load_network
from evaluator.network.random_network import SHAPES, random_network
from evaluator.network.spec import NetworkSpec

LC0_POSITIONS_PER_SECOND = {
    "t82": {1: 683, 8: 5059, 32: 13810, 128: 22983, 256: 26946, 512: 29199, 1024: 30421},
    "bt4": {1: 628, 8: 4600, 32: 11229, 128: 17877, 256: 19520, 512: 20767, 1024: 21240},
    "t80": {1: 1291, 32: 30029, 256: 61258, 1024: 72697},
}
"""lc0 v0.33-dev, cuda-fp16, random weights of the same shapes, one H200."""

_T80 = replace(SHAPES["t80"], ffn=512)
"""Same width as the network that lc0 was measured with."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", default="t82,bt4,t80")
    parser.add_argument("--batches", default="1,8,32,128,256,512,1024")
    parser.add_argument("--golden", type=Path, help="a folder of lc0 network files to verify, all precisions")
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--weights", default="", help="int8 or int4; empty for those of the precision")
    parser.add_argument("--profile", default="", help="batch sizes to profile")
    parser.add_argument(
        "--positions", type=int, default=8, help="positions to verify the large networks with"
    )
    parser.add_argument("--json", type=Path, help="write everything there too")
    parser.add_argument("--verbose", action="store_true", help="log what is measured at opening")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO if arguments.verbose else logging.WARNING, format="%(message)s")
    report: dict[str, object] = {}
    if arguments.golden:
        for path in sorted(arguments.golden.glob("*.pb.gz")):
            network = load_network(path)
            for precision in ("fp16", "bf16", "fp32"):
                try:
                    with open_gpu(network, precision=precision, max_batch=64) as backend:
                        report[f"{path.stem} {precision}"] = verify(
                            backend, network, f"{path.stem} {precision}", 48
                        )
                except Exception as error:
                    print(f"{path.stem} {precision}: FAILED {error}", flush=True)
    batches = [int(size) for size in arguments.batches.split(",")]
    for shape in filter(None, arguments.shapes.split(",")):
        start = time.perf_counter()
        network = random_network(_T80 if shape == "t80" else shape)
        made = time.perf_counter()
        backend = open_gpu(
            network,
            precision=arguments.precision,
            weights=arguments.weights,
            buckets="+".join(map(str, batches)),
        )
        print(
            f"\n{shape} on {backend.device}: network made in {made - start:.1f} s, opened in "
            f"{time.perf_counter() - made:.1f} s",
            flush=True,
        )
        with backend:
            errors = verify(backend, network, shape, arguments.positions)
            curve = time_batches(backend, shape, batches)
            for size in filter(None, arguments.profile.split(",")):
                profile(backend, int(size))
        report[shape] = {"errors": errors, "curve": curve}
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))


def verify(backend: GpuBackend, network: NetworkSpec, name: str, count: int) -> dict[str, float]:
    """Return the maximum errors against the float64 reference."""
    batch = probe_batch(count, seed=3)
    expected = ReferenceBackend(network, dtype="float64").evaluate(batch)
    result = backend.evaluate(batch)
    difference = np.abs(result.logits - expected.logits)
    same = np.mean(
        [
            np.argmax(result.logits[a:b]) == np.argmax(expected.logits[a:b])
            for a, b in zip(batch.move_offsets[:-1], batch.move_offsets[1:], strict=True)
        ]
    )
    errors = {
        "logits": float(difference.max()),
        "logits_rms": float(np.sqrt(np.square(difference).mean())),
        "logits_std": float(expected.logits.std()),
        "wdl": float(np.abs(result.wdl - expected.wdl).max()),
        "moves_left": float(np.abs(result.moves_left - expected.moves_left).max()),
        "same_best_move": float(same),
    }
    print(f"{name:42}", "  ".join(f"{key} {value:.2g}" for key, value in errors.items()), flush=True)
    return errors


def time_batches(backend: GpuBackend, shape: str, batches: list[int]) -> list[dict[str, float]]:
    rows = []
    print("   batch   device ms   positions/s   evaluate ms   positions/s   lc0 positions/s   ratio")
    for size in batches:
        device_ms = backend.executor.time(size, 20 if size >= 256 else 50)
        whole_ms = two_in_flight(backend, size, 0.4)
        lc0 = LC0_POSITIONS_PER_SECOND.get(shape, {}).get(size)
        row = {"batch": size, "device_ms": device_ms, "evaluate_ms": whole_ms}
        rows.append(row)
        beside = f"{lc0:17,}   {1000 * size / device_ms / lc0:5.2f}" if lc0 else ""
        print(
            f"{size:8}   {device_ms:9.3f}   {1000 * size / device_ms:11,.0f}   {whole_ms:11.3f}   "
            f"{1000 * size / whole_ms:11,.0f}   {beside}",
            flush=True,
        )
    return rows


def two_in_flight(backend: GpuBackend, size: int, seconds: float) -> float:
    """Return milliseconds per batch with two threads calling `evaluate`; one thread for one position."""
    batch = probe_batch(size, seed=5)
    threads = backend.max_in_flight if size > 1 else 1
    backend.evaluate(batch)
    counts = [0] * threads
    end = time.perf_counter() + seconds

    def work(index: int) -> None:
        while time.perf_counter() < end:
            backend.evaluate(batch)
            counts[index] += 1

    start = time.perf_counter()
    workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return (time.perf_counter() - start) * 1000 / sum(counts)


def profile(backend: GpuBackend, size: int, repeats: int = 20) -> None:
    """Print the time of each launch, back to back, so without the graph's overlap."""
    by_label: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for step, milliseconds in backend.executor.profile(size, repeats):
        label = ".".join(step.label.split(".")[1:]) if step.label.startswith("encoder") else step.label
        constants = dict(step.kernel.constants) if isinstance(step, Launch) else {}
        tile = "" if isinstance(step, Launch) else " library"
        if isinstance(step, Launch) and step.kernel.file == "gemm_hopper":
            norm = ", norm" if constants["NORMALISE"] else ""
            tile = f" wgmma {constants['BLOCK_N']}{norm}"
        elif isinstance(step, Launch) and "BLOCK_M" in constants:
            packed = " packed" * bool(constants["PACKED"])
            tile = f"{packed} {constants['BLOCK_M']}x{constants['BLOCK_N']}/{step.grid[2]}"
        entry = by_label[label + tile]
        entry[0] += 1
        entry[1] += milliseconds
    total = sum(entry[1] for entry in by_label.values())
    print(f"   batch {size}, each launch alone: {total:.3f} ms")
    for label, (count, milliseconds) in sorted(by_label.items(), key=lambda item: -item[1][1])[:24]:
        print(
            f"      {label:44} {count:4.0f} x {1000 * milliseconds / count:8.1f} us = {milliseconds:7.3f} ms"
        )


if __name__ == "__main__":
    main()
