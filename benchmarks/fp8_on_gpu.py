"""precision=fp8 on a real GPU: every kernel and whole networks against the rounded reference, and its speed
beside fp16.

    python benchmarks/fp8_on_gpu.py [--parts kernels,networks,speed] [--shapes t80,t82,bt4]
        [--batches 16,32,64,264,1056] [--device NAME]

A line for each thing that is checked, "ok" or "WRONG" first; of what is wrong also where: the share of wrong
numbers, the first one, which rows and columns have any, and what is found over what is right (a wrong scale
is the same everywhere, a wrong order of columns is not). `networks` runs a network of two layers launch by
launch and compares each matrix of e4m3 numbers with what the reference rounds at that place, so that the
first launch that differs is the wrong one. The exit status is 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import checkout  # noqa: F401 -- this checkout is measured, whatever is installed
import numpy as np
from fp8_kernels import Bytes, Floats, Runner, check_kernels, guarded
from gpu import profile
from numpy.typing import NDArray

from evaluator.backends.gpu import open as open_gpu
from evaluator.backends.probe import probe_batch
from evaluator.backends.reference import ReferenceBackend
from evaluator.gpu.blas.product import Product
from evaluator.gpu.driver.discovery import found_devices, open_device, select
from evaluator.gpu.driver.target import Precision
from evaluator.gpu.plan import hopper
from evaluator.gpu.plan.fp8 import rounded_network
from evaluator.gpu.plan.plan import Plan
from evaluator.gpu.plan.program import Launch, Step
from evaluator.gpu.plan.tiles import Choice, model_chooser
from evaluator.network.e4m3 import E4m3Inputs, decoded, nearest
from evaluator.network.random_network import SHAPES, random_network
from evaluator.network.spec import NetworkSpec

PRECISION = Precision.FP16

# --- networks -----------------------------------------------------------------------------------------------


def rounded_places(network: NetworkSpec, count: int) -> list[Floats]:
    """What the reference rounds, scaled, in the order in which launches write it: the inputs of q, k and v,
    those of the heads' output, and those of both layers behind."""
    seen: list[Floats] = []
    original = E4m3Inputs.rounded

    def noted(inputs: E4m3Inputs, x: Any) -> Any:
        scaled = x.reshape(-1, x.shape[-1]) * np.float32(inputs.scale)
        if not seen or seen[-1].shape != scaled.shape or not np.array_equal(seen[-1], scaled):
            seen.append(scaled)
        return original(inputs, x)

    with patch.object(E4m3Inputs, "rounded", noted):
        ReferenceBackend(network).evaluate(probe_batch(count, seed=7))
    return seen


def check_network(runner: Runner, shape: str, count: int) -> None:
    """Two layers, launch by launch."""
    network = random_network(replace(SHAPES[shape], layers=2), seed=1)
    rounded = rounded_network(network)
    places = rounded_places(rounded, count)
    choose = model_chooser(runner.target, PRECISION, runner.device.info.multiprocessors)

    def with_hopper(product: Product) -> Choice:
        tiles = hopper.candidates(product, runner.target, PRECISION)
        return Choice(None, hopper=tiles[-1]) if tiles else choose(product)

    program = Plan(network, runner.target, PRECISION, with_hopper, rounded=rounded).program(count)
    batch = probe_batch(count, seed=7)
    arrays: dict[str, NDArray[Any]] = {
        "positions": np.frombuffer(batch.positions.tobytes(), np.uint8),
        "move_offsets": batch.move_offsets,
        "moves": batch.moves,
        "logits": np.zeros(len(batch.moves), np.float32),
        "wdl": np.zeros((count, 3), np.float32),
        "moves_left": np.zeros(count, np.float32),
    }
    at = 0

    def after(step: Step, read: Callable[[str], Bytes]) -> None:
        nonlocal at
        if not isinstance(step, Launch) or at == len(places):
            return
        constants = dict(step.kernel.constants)
        if not (constants.get("ROUND") or (step.kernel.file == "attention_hopper" and constants["E4M3"])):
            return
        scaled = places[at]
        at += 1
        name = "attention" if "attention" in step.kernel.file else "hidden" if ".ffn1" in step.label else "x"
        found = decoded(read(f"{name}.e4m3")[: scaled.size].reshape(scaled.shape))
        # Errors of the launches before have been rounded, too: a step and a half for a few.
        allowed = np.maximum(np.abs(scaled) * np.float32(0.2), np.float32(2**-8)) + np.float32(
            0.1 * np.sqrt(np.square(scaled).mean())
        )
        same = (found == nearest(scaled)).mean()
        label = f"{shape}, {count} positions, {step.label} ({step.kernel.file}), same codes {same:.1%}"
        runner.report(label, found, np.clip(scaled, -448, 448), allowed)

    runner.run(program, arrays, after)
    if at != len(places):
        runner.wrong += 1
        print(f"WRONG  {shape}: {at} launches rounded something, {len(places)} should have")


# --- speed --------------------------------------------------------------------------------------------------


def check_speed(runner: Runner, shape: str, batches: tuple[int, ...], device: str) -> None:
    """Whole networks: errors against both references at the first batch, and the time of every batch."""
    network = random_network(replace(SHAPES["t80"], ffn=512) if shape == "t80" else shape)
    batch = probe_batch(min(16, batches[0]), seed=3)
    exact = ReferenceBackend(network).evaluate(batch)
    right = ReferenceBackend(rounded_network(network)).evaluate(batch)
    times: dict[str, list[float]] = {}
    for precision in ("fp16", "fp8"):
        start = time.perf_counter()
        buckets = "+".join(map(str, batches))
        try:
            backend = open_gpu(network, precision=precision, buckets=buckets, device=device)
        except Exception as error:
            runner.wrong += 1
            print(f"WRONG  {shape} {precision}: {str(error)[:400]}", flush=True)
            continue
        with backend:
            opened = time.perf_counter() - start
            result = backend.evaluate(batch)
            times[precision] = [backend.executor.time(size, max(20, 6000 // size)) for size in batches]
            spread = float(exact.logits.std())
            errors = ", ".join(
                f"off {name} by {np.sqrt(np.square(result.logits - each.logits).mean()) / spread:.2%} rms, "
                f"W D L {np.abs(result.wdl - each.wdl).max():.4f}"
                for name, each in (("the reference", exact), ("the rounded one", right))
            )
            print(f"       {shape} {precision}: opened in {opened:.1f} s; {errors}", flush=True)
            if precision == "fp8" and shape == "bt4":
                profile(backend, batches[-2] if len(batches) > 1 else batches[0], 10)
    for index, size in enumerate(batches):
        row = {name: size * 1000 / values[index] for name, values in times.items()}
        gain = f", {row['fp8'] / row['fp16']:.3f} times" if len(row) == 2 else ""
        shown = ", ".join(f"{name} {rate:,.0f}" for name, rate in row.items())
        print(f"       {shape} at {size}: positions/s {shown}{gain}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default="kernels,networks,speed")
    parser.add_argument("--shapes", default="t80,t82,bt4")
    parser.add_argument("--batches", default="16,32,64,264,1056")
    parser.add_argument("--device", default="")
    arguments = parser.parse_args()
    parts = arguments.parts.split(",")
    device = open_device(select(found_devices().devices, arguments.device))
    runner = Runner(device)
    print(f"{device.info.name}, {runner.target.name}, {device.info.driver}")
    start = time.perf_counter()
    if "kernels" in parts:
        check_kernels(runner)
        print(f"       kernels took {time.perf_counter() - start:.0f} s", flush=True)
    if "networks" in parts:
        for shape, count in (("bt4", 64), ("t82", 64), ("t80", 32)):
            guarded(runner, shape, lambda s=shape, n=count: check_network(runner, s, n))  # type: ignore[misc]
        print(f"       networks done after {time.perf_counter() - start:.0f} s", flush=True)
    device.close()
    if "speed" in parts:
        sizes = tuple(sorted(int(size) for size in arguments.batches.split(",")))
        for shape in arguments.shapes.split(","):
            guarded(runner, shape, lambda s=shape: check_speed(runner, s, sizes, arguments.device))  # type: ignore[misc]
    print(f"{runner.wrong} wrong; {time.perf_counter() - start:.0f} s")
    return 1 if runner.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
