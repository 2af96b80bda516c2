"""precision=fp8 and int8 on a real GPU: every kernel and whole networks against the rounded reference, and
their speed and energy beside fp16.

    python -m benchmarks.backends.eight_bits_on_gpu [--parts kernels,networks,speed] [--formats fp8,int8]
        [--shapes t80,t82,bt4] [--batches 16,64,264,1056] [--power-s 4] [--device NAME]

A line for each thing that is checked, "ok" or "WRONG" first; of what is wrong also where: the share of wrong
numbers, the first one, which rows and columns have any, and what is found over what is right (a wrong scale
is the same everywhere, a wrong order of columns is not). `networks` runs a network of two layers launch by
launch and compares each matrix of 8 bits with what the reference rounds at that place, so that the
first launch that differs is the wrong one. `speed` prints positions/s and, by NVML's counter over so many
seconds of the largest batch, watts and millijoules a position. The exit status is 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from benchmarks.backends.eight_bits_kernels import Bytes, Floats, Runner, check_kernels, guarded
from benchmarks.backends.gpu import profile
from evaluator.backends.gpu import GpuBackend
from evaluator.backends.gpu import open as open_gpu
from evaluator.backends.probe import probe_batch
from evaluator.backends.reference import ReferenceBackend
from evaluator.gpu.blas.product import Product
from evaluator.gpu.driver.discovery import found_devices, open_device, select
from evaluator.gpu.driver.target import Precision
from evaluator.gpu.plan import hopper
from evaluator.gpu.plan.eight_bits import rounded_network
from evaluator.gpu.plan.plan import Plan
from evaluator.gpu.plan.program import Launch, Step
from evaluator.gpu.plan.tiles import Choice, model_chooser
from evaluator.network.e4m3 import E4m3Inputs, decoded, nearest
from evaluator.network.eight_bits import EightBits
from evaluator.network.int8 import Int8Inputs, scales
from evaluator.network.random_network import SHAPES, random_network
from evaluator.network.spec import NetworkSpec

PRECISION = Precision.FP16

# --- networks -----------------------------------------------------------------------------------------------


def rounded_places(network: NetworkSpec, form: EightBits, count: int) -> list[Floats]:
    """What the reference rounds, in steps of the format, in the order in which launches write it: the inputs
    of q, k and v, those of the heads' output, and those of both layers behind."""
    seen: list[Floats] = []
    kind = Int8Inputs if form is EightBits.INT8 else E4m3Inputs
    original = kind.rounded

    def noted(inputs: Any, x: Any) -> Any:
        scaled = x.reshape(-1, x.shape[-1])
        scaled = scaled / scales(scaled) if form is EightBits.INT8 else scaled * np.float32(inputs.scale)
        if not seen or seen[-1].shape != scaled.shape or not np.array_equal(seen[-1], scaled):
            seen.append(scaled)
        return original(inputs, x)

    with patch.object(kind, "rounded", noted):
        ReferenceBackend(network).evaluate(probe_batch(count, seed=7))
    return seen


def compare_place(runner: Runner, label: str, form: EightBits, codes: Bytes, scaled: Floats) -> None:
    """One matrix of 8 bits beside what the reference rounds. Errors of the launches before have been rounded,
    too: a step and a half of e4m3, a few of int8, more for one number of a thousand."""
    spread = np.float32(0.1 * np.sqrt(np.square(scaled).mean()))
    codes = codes[: scaled.size].reshape(scaled.shape)
    if form is EightBits.INT8:
        found, right = codes.view(np.int8).astype(np.float32), np.rint(scaled)
        allowed = np.full_like(scaled, 3 + spread)
    else:
        found, right, scaled = decoded(codes), nearest(scaled), np.clip(scaled, -448, 448)
        allowed = np.maximum(np.abs(scaled) * np.float32(0.2), np.float32(2**-8)) + spread
    runner.report(f"{label}, same codes {(found == right).mean():.1%}", found, scaled, allowed, 1e-3)


def check_network(runner: Runner, form: EightBits, shape: str, count: int) -> None:
    """Two layers, launch by launch."""
    network = random_network(replace(SHAPES[shape], layers=2), seed=1)
    rounded = rounded_network(network, form)
    places = rounded_places(rounded, form, count)
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
        if not dict(step.kernel.constants).get("ROUND"):
            return
        scaled = places[at]
        at += 1
        name = "attention" if "attention" in step.label else "hidden" if ".ffn1" in step.label else "x"
        label = f"{shape}, {form.value}, {count} positions, {step.label} ({step.kernel.file})"
        compare_place(runner, label, form, read(f"{name}.{form.value}"), scaled)

    runner.run(program, arrays, after)
    if at != len(places):
        runner.wrong += 1
        print(f"WRONG  {shape}, {form.value}: {at} launches rounded something, {len(places)} should have")


# --- speed --------------------------------------------------------------------------------------------------


def millijoules(device: str) -> Callable[[], float] | None:
    """What reads the energy that a GPU has taken so far; None where nothing tells."""
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
        pci = select(found_devices().devices, device).pci
        handle = nvml.nvmlDeviceGetHandleByPciBusId(pci.encode())
        nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except Exception as error:
        print(f"       no energy: {error} (pip install nvidia-ml-py)")
        return None
    return lambda: float(nvml.nvmlDeviceGetTotalEnergyConsumption(handle))


_RUNS_OF_TIME = 4
"""How often `Executor.time` repeats what it is asked to repeat."""


def energy_of(backend: GpuBackend, size: int, seconds: float, counter: Callable[[], float]) -> str:
    """Of batches of one size for so long, the clock and the temperature having settled for a fourth of it."""
    about_ms = backend.executor.time(size, 5)
    repeats = max(5, int(seconds * 1000 / about_ms / _RUNS_OF_TIME))
    backend.executor.time(size, max(5, repeats // 4))
    start, before = time.perf_counter(), counter()
    backend.executor.time(size, repeats)
    joules, took = (counter() - before) / 1000, time.perf_counter() - start
    positions = _RUNS_OF_TIME * repeats * size
    each = f"{joules / took:.0f} W, {1000 * joules / positions:.2f} mJ a position"
    return f"at {size} for {took:.1f} s: {positions / took:,.0f} positions/s, {each}"


def check_speed(
    runner: Runner,
    shape: str,
    formats: tuple[str, ...],
    batches: tuple[int, ...],
    arguments: argparse.Namespace,
) -> None:
    """Whole networks: errors against both references at the first batch, the time of every batch, and the
    energy of the largest."""
    network = random_network(replace(SHAPES["t80"], ffn=512) if shape == "t80" else shape)
    batch = probe_batch(min(16, batches[0]), seed=3)
    exact = ReferenceBackend(network).evaluate(batch)
    counter = millijoules(arguments.device) if arguments.power_s else None
    times: dict[str, list[float]] = {}
    for precision in ("fp16", *formats):
        start = time.perf_counter()
        buckets = "+".join(map(str, batches))
        try:
            backend = open_gpu(network, precision=precision, buckets=buckets, device=arguments.device)
        except Exception as error:
            runner.wrong += 1
            print(f"WRONG  {shape} {precision}: {str(error)[:400]}", flush=True)
            continue
        with backend:
            opened = time.perf_counter() - start
            result = backend.evaluate(batch)
            times[precision] = [backend.executor.time(size, max(20, 6000 // size)) for size in batches]
            spread = float(exact.logits.std())
            references = {"the reference": exact}
            for form in EightBits:
                if form.option == precision:
                    rounded = rounded_network(network, form)
                    references["the rounded one"] = ReferenceBackend(rounded).evaluate(batch)
            errors = ", ".join(
                f"off {name} by {np.sqrt(np.square(result.logits - each.logits).mean()) / spread:.2%} rms, "
                f"W D L {np.abs(result.wdl - each.wdl).max():.4f}"
                for name, each in references.items()
            )
            print(f"       {shape} {precision}: opened in {opened:.1f} s; {errors}", flush=True)
            if counter is not None:
                shown = energy_of(backend, batches[-1], arguments.power_s, counter)
                print(f"       {shape} {precision} {shown}", flush=True)
            if precision != "fp16" and shape == "bt4":
                profile(backend, batches[-2] if len(batches) > 1 else batches[0], 10)
    for index, size in enumerate(batches):
        row = {name: size * 1000 / values[index] for name, values in times.items()}
        gains = "".join(
            f", {name} {rate / row['fp16']:.3f} times" for name, rate in row.items() if "fp16" in row
        )
        shown = ", ".join(f"{name} {rate:,.0f}" for name, rate in row.items())
        print(f"       {shape} at {size}: positions/s {shown}{gains}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default="kernels,networks,speed")
    parser.add_argument("--formats", default="fp8,int8")
    parser.add_argument("--shapes", default="t80,t82,bt4")
    parser.add_argument("--batches", default="16,64,264,1056")
    parser.add_argument("--power-s", type=float, default=4.0)
    parser.add_argument("--device", default="")
    arguments = parser.parse_args()
    parts = arguments.parts.split(",")
    device = open_device(select(found_devices().devices, arguments.device))
    runner = Runner(device)
    print(f"{device.info.name}, {runner.target.name}, {device.info.driver}")
    forms = [form for form in EightBits if form.option in arguments.formats.split(",")]
    for form in [*forms]:
        if reason := runner.target.without(form):
            print(f"       {form.option} is left out: {reason}")
            forms.remove(form)
    start = time.perf_counter()
    if "kernels" in parts:
        check_kernels(runner, forms)
        print(f"       kernels took {time.perf_counter() - start:.0f} s", flush=True)
    if "networks" in parts:
        for form in forms:
            for shape, count in (("bt4", 64), ("t82", 64), ("t80", 32)):
                guarded(runner, shape, partial(check_network, runner, form, shape, count))
        print(f"       networks done after {time.perf_counter() - start:.0f} s", flush=True)
    device.close()
    if "speed" in parts:
        sizes = tuple(sorted(int(size) for size in arguments.batches.split(",")))
        options = tuple(form.option for form in forms)
        for shape in arguments.shapes.split(","):
            guarded(runner, shape, partial(check_speed, runner, shape, options, sizes, arguments))
    print(f"{runner.wrong} wrong; {time.perf_counter() - start:.0f} s")
    return 1 if runner.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
