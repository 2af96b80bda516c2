# SPDX-License-Identifier: GPL-3.0-or-later
"""Build, verify and time the gpu backend on networks of random weights, next to lc0 on the same GPU.

    python -m benchmarks.backends.gpu [--shapes t82,bt4,t80] [--batches 1,2,4,8,16,32,128,256,512,1024]
        [--lc0 PROGRAM] [--golden FOLDER] [--profile BATCH,…] [--json FILE]

Prints for each network: errors against the float64 reference; the time to read its weights at the measured
rate of the GPU's memory, below which no batch can be; milliseconds of the computation alone (graph replays,
CUDA or HIP events), and of `evaluate` with two batches in flight (with one for one position). With --lc0,
also the milliseconds of lc0's `backendbench` with cuda-fp16. With --profile, the time of every launch of one
batch, summed by label. --verbose shows what the start measures: each method of a size, and each product.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import logging
import re
import shlex
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from evaluator.backends.common.probe import probe_batch
from evaluator.backends.gpu.backend import GpuBackend
from evaluator.backends.gpu.backend import open as open_gpu
from evaluator.backends.gpu.plan.program import Launch
from evaluator.backends.reference.backend import ReferenceBackend
from evaluator.network import load_network
from evaluator.network.describe import cost_of
from evaluator.network.random_network import SHAPES, random_network
from evaluator.network.spec import NetworkSpec
from evaluator.network.writer import write_network

_T80 = replace(SHAPES["t80"], ffn=512)
"""The width that earlier measurements of lc0 used."""

_READER = """
extern "C" __global__ void read_all(const float4* __restrict__ data, long long count, float* sums) {
    float sum = 0;
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        const float4 value = data[i];
        sum += value.x + value.y + value.z + value.w;
    }
    if (sum == 1.5f) *sums = sum;
}
"""
"""Reads an array. The condition never holds for zeros, but keeps the loads."""

_READ_BYTES = 2 << 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", default="t82,bt4,t80")
    parser.add_argument("--batches", default="1,2,4,8,16,32,128,256,512,1024")
    parser.add_argument("--lc0", default="", help="lc0 with CUDA, to measure on the same networks")
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
            floor_ms = reading_ms(backend, network)
            lc0 = lc0_ms(arguments.lc0, network, batches) if arguments.lc0 else {}
            curve = time_batches(backend, batches, lc0)
            for size in filter(None, arguments.profile.split(",")):
                profile(backend, int(size))
        report[shape] = {
            "device": str(backend.device),
            "errors": errors,
            "floor_ms": floor_ms,
            "curve": curve,
        }
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


def reading_ms(backend: GpuBackend, network: NetworkSpec) -> float:
    """Return the milliseconds in which the GPU reads the weights in fp16 once, at its measured rate."""
    device = backend.executor.device
    device.activate()
    code = device.compile(_READER, "read_all", device.info.target.options)
    kernel = device.load(code, "read_all", 0)
    data, sums = device.allocate(_READ_BYTES), device.allocate(4)
    stream = device.create_stream()
    start, end = (device.create_event(timing=True) for _ in range(2))
    times = []
    grid = (8 * device.info.compute_units, 1, 1)
    counted = [ctypes.c_uint64(data), ctypes.c_longlong(_READ_BYTES // 16), ctypes.c_uint64(sums)]
    for _ in range(6):
        device.record(start, stream)
        device.launch(kernel, grid, 512, 0, counted, stream)
        device.record(end, stream)
        device.synchronize(end)
        times.append(device.milliseconds(start, end))
    device.free(data)
    device.free(sums)
    rate = _READ_BYTES / min(times) * 1e3
    weights = 2 * cost_of(network).parameters
    milliseconds = weights / rate * 1e3
    print(
        f"   reads {rate / 1e12:.2f} TB/s: {weights / 1e6:.0f} MB of weights take {milliseconds:.3f} ms",
        flush=True,
    )
    return milliseconds


def lc0_ms(program: str, network: NetworkSpec, batches: Sequence[int]) -> dict[int, float]:
    """Return the mean milliseconds of lc0's batches by size. Sizes above its maximum, 1024, are left out."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "network.pb"
        write_network(network, weights)
        for size in batches:
            if size > 1024:
                continue
            sizes = (f"--start-batch-size={size}", f"--max-batch-size={size}", "--batches=100")
            command = (program, "backendbench", f"--weights={weights}", "--backend=cuda-fp16", *sizes)
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            rows = re.findall(rf"^ *{size}, *[0-9.]+, *([0-9.]+)", output, re.MULTILINE)
            if not rows:
                raise SystemExit(f"{shlex.join(command)} printed no row of size {size}:\n{output}")
            found[size] = float(rows[-1])
    return found


def time_batches(
    backend: GpuBackend, batches: Sequence[int], lc0: Mapping[int, float]
) -> list[dict[str, float]]:
    """Return and print the milliseconds of each size. lc0: those of lc0."""
    rows = []
    print("   batch   device ms   positions/s   evaluate ms   positions/s    lc0 ms   positions/s   ratio")
    for size in batches:
        device_ms = backend.executor.time(size, 20 if size >= 256 else 50)
        whole_ms = two_in_flight(backend, size, 0.4)
        row = {"batch": size, "device_ms": device_ms, "evaluate_ms": whole_ms}
        beside = ""
        if size in lc0:
            row["lc0_ms"] = lc0[size]
            beside = f"{lc0[size]:10.3f}   {1000 * size / lc0[size]:11,.0f}   {lc0[size] / whole_ms:5.2f}"
        rows.append(row)
        print(
            f"{size:8}   {device_ms:9.3f}   {1000 * size / device_ms:11,.0f}   {whole_ms:11.3f}   "
            f"{1000 * size / whole_ms:11,.0f}{beside}",
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
