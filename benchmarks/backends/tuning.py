# SPDX-License-Identifier: GPL-3.0-or-later
"""What a first start measures: seconds, and what measuring fewer candidates loses.

    python -m benchmarks.backends.tuning [--shape bt4] [--batches 1,2,4] [--device NAME]

All matrix products of a network (at the usual batch sizes if none are given) are measured twice, with all
candidates and with those that are fast at batch sizes beside (evaluator/gpu/tuning/shortlist.py), each time
without any cache, compiled kernels included. Where the two ways choose differently both choices are measured
again in turns: how much slower the second is, is printed for the worst products and for all together.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evaluator.gpu.blas.discovery import open_libraries
from evaluator.gpu.blas.library import Library
from evaluator.gpu.blas.product import Product
from evaluator.gpu.driver.compiler import Compiler
from evaluator.gpu.driver.device import Device, DeviceError
from evaluator.gpu.driver.discovery import found_devices, open_device, select
from evaluator.gpu.driver.target import Precision
from evaluator.gpu.plan.needs import Needs, needs_of
from evaluator.gpu.plan.plan import Plan
from evaluator.gpu.plan.tiles import Choice, model_chooser
from evaluator.gpu.run.buckets import usual_buckets
from evaluator.gpu.tuning.bench import Bench
from evaluator.gpu.tuning.samples import Samples
from evaluator.gpu.tuning.tune import Tuner
from evaluator.network.random_network import random_network

PRECISION = Precision.FP16
WORST = 12


@dataclass(frozen=True, slots=True)
class Way:
    """One way to measure. chosen: by product. candidates: that were right, of all products."""

    seconds: float
    candidates: int
    chosen: dict[Product, Choice]
    microseconds: dict[Product, float]


def measure(
    device: Device, libraries: Sequence[Library], needs: Needs, *, shortlists: bool, precision: Precision
) -> Way:
    """All products, from nothing. Raises DeviceError."""
    with tempfile.TemporaryDirectory() as folder:
        compiler = Compiler(device, cache_folder=Path(folder))
        tuner = Tuner(device, compiler, precision, libraries, use_cache=False, shortlists=shortlists)
        began = time.perf_counter()
        tuner.measure_all(needs)
        compiler.load(list(needs.kernels))
        seconds = time.perf_counter() - began
    known = tuner.known
    return Way(
        seconds,
        sum(len(measured) for measured in known.values()),
        {product: measured[0].choice for product, measured in known.items()},
        {product: measured[0].microseconds for product, measured in known.items()},
    )


def compared(
    device: Device, libraries: Sequence[Library], full: Way, short: Way, precision: Precision
) -> dict[Product, tuple[float, float]]:
    """Microseconds by either way of the products whose choices differ, measured in turns."""
    found: dict[Product, tuple[float, float]] = {}
    compiler = Compiler(device)
    differing = [product for product in full.chosen if full.chosen[product] != short.chosen[product]]
    with Samples(device, precision) as samples:
        for product in sorted(differing, key=lambda each: (each.n, each.k, each.weight_bits, each.e4m3)):
            choices = [full.chosen[product], short.chosen[product]]
            with Bench(device, compiler, libraries, product, samples) as bench:
                for choice in choices:
                    bench.errors(choice)
                first, second = bench.in_turns(choices, full.microseconds[product])
            found[product] = first, second
    return found


def report(full: Way, short: Way, again: dict[Product, tuple[float, float]]) -> str:
    """In words."""
    lines = [
        f"{name:22} {way.seconds:6.1f} s, {way.candidates:5} candidates"
        for name, way in (("with all candidates", full), ("with shortlists", short))
    ]
    total = sum(full.microseconds.values())
    lost = sum(second - first for first, second in again.values())
    lines.append(
        f"{len(again)} of {len(full.chosen)} products have other choices; with shortlists all take "
        f"{100 * lost / total:+.2f} % longer"
    )
    worst = sorted(again.items(), key=lambda item: item[1][0] - item[1][1])[:WORST]
    for product, (first, second) in worst:
        lines.append(
            f"   {product.m:6} x {product.n} x {product.k}: {full.chosen[product]} {first:.1f} us, "
            f"{short.chosen[product]} {second:.1f} us"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", default="bt4")
    parser.add_argument("--batches", default="", help="default: the usual ones")
    parser.add_argument("--device", default="")
    arguments = parser.parse_args()
    try:
        device = open_device(select(found_devices().devices, arguments.device))
    except DeviceError as error:
        raise SystemExit(str(error)) from None
    info = device.info
    libraries, _ = open_libraries(info, PRECISION)
    choose = model_chooser(info.target, PRECISION, info.multiprocessors)
    blocks = info.multiprocessors if info.cooperative else 0
    plan = Plan(random_network(arguments.shape), info.target, PRECISION, choose, blocks=blocks)
    sizes = tuple(map(int, arguments.batches.split(","))) if arguments.batches else usual_buckets(info)
    needs = needs_of(plan, sizes, info.multiprocessors)
    short = measure(device, libraries, needs, shortlists=True, precision=PRECISION)
    print(f"{info.name}: with shortlists {short.seconds:.1f} s", flush=True)
    full = measure(device, libraries, needs, shortlists=False, precision=PRECISION)
    print(report(full, short, compared(device, libraries, full, short, PRECISION)))


if __name__ == "__main__":
    main()
