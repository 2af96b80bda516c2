# SPDX-License-Identifier: GPL-3.0-or-later
"""Latency in milliseconds of 1 to 32 positions, with every way of computing them.

    python -m benchmarks.backends.few_positions [--shapes bt4,t82,t80] [--batches 1,2,4,8,16,32] [--layer 8]

Prints one line per way for each shape: many launches, each product by its fastest implementation; one launch
for all encoders in either form (evaluator/gpu/plan/persistent_form.py); our own kernels alone (plan.py,
`own_program`), as a chain or with smolgen as a second branch, norms deferred to their readers or not.
Shows device milliseconds (median of alternating runs) and the error of logits, in standard deviations;
"WRONG" if the self-check would reject it. Then lists every launch of a layer, measured alone, at batch size
--layer, and the fastest of each kind for its products. All products are measured again, with twice as many
candidates of kernels/gemm_cluster.hip as at a start. Exit status: 1 after a wrong result.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from evaluator.backends.probe import probe_batch
from evaluator.backends.reference import ReferenceBackend
from evaluator.gpu.blas.discovery import open_libraries
from evaluator.gpu.driver.compiler import Compiler
from evaluator.gpu.driver.device import Device, DeviceError
from evaluator.gpu.driver.discovery import found_devices, open_device, select
from evaluator.gpu.driver.target import Precision
from evaluator.gpu.plan import cluster_tiles
from evaluator.gpu.plan.needs import needs_of
from evaluator.gpu.plan.persistent_form import PAIRS_AND_LOGITS, USUAL
from evaluator.gpu.plan.plan import OWN_POSITIONS, Plan
from evaluator.gpu.plan.program import Program
from evaluator.gpu.plan.tiles import Choice
from evaluator.gpu.run.executor import Executor
from evaluator.gpu.run.self_check import errors, limits
from evaluator.gpu.tuning.tune import Tuner
from evaluator.network.random_network import random_network
from evaluator.network.spec import NetworkSpec
from protocol.batch import EvaluationBatch, PositionBatch

MANY = "many launches"
OWN = {
    "own, chain": (True, True),
    "own, branches": (False, True),
    "own, chain, norms": (True, False),
}
"""Whether the program is one chain, and whether norms are deferred to their readers."""

PERSISTENT = {"one launch": USUAL, "one, pairs, logits": PAIRS_AND_LOGITS}
PRECISION = Precision.FP16
MOST_IN_ONE = 2
TURNS, RUNS = 8, 15


@dataclass(slots=True)
class Result:
    """One way at one batch size. logits: root mean square error, in standard deviations. wdl: maximum error.
    times: device milliseconds of each turn."""

    logits: float
    wdl: float
    times: list[float] = field(default_factory=list)

    @property
    def ms(self) -> float:
        """Median milliseconds."""
        return median(self.times)

    @property
    def right(self) -> bool:
        most_logits, most_wdl = limits(PRECISION)
        return self.logits <= most_logits and self.wdl <= most_wdl


@dataclass(slots=True)
class EveryWay(Plan):
    """A plan with more programs than a start could measure. names: of its programs, by id."""

    names: dict[int, str] = field(default_factory=dict)
    kept: list[Program] = field(default_factory=list)

    def persistent_programs(self, positions: int) -> list[Program]:
        """Return one program for each form."""
        if positions > MOST_IN_ONE or not self.blocks:
            return []
        return self._named(
            (name, self._persistent_program(positions, form)) for name, form in PERSISTENT.items()
        )

    def own_programs(self, positions: int) -> list[Program]:
        """Return programs with and without deferred norms."""
        if self.measurements is None or self.target.name != "sm_90" or positions not in OWN_POSITIONS:
            return []
        return self._named(
            (name, self.own_program(positions, chained=chained, left=left))
            for name, (chained, left) in OWN.items()
        )

    def _named(self, programs: Any) -> list[Program]:
        found = [(name, program) for name, program in programs if program is not None]
        for name, program in found:
            self.names[id(program)] = name
            self.kept.append(program)  # keeps its id unique
        return [program for _, program in found]


def measured(
    executor: Executor, plan: EveryWay, sizes: Sequence[int], network: NetworkSpec
) -> dict[str, dict[int, Result]]:
    """Return results by way and batch size."""
    batch = probe_batch(max(sizes), seed=3)
    expected = ReferenceBackend(network).evaluate(batch)
    found: dict[str, dict[int, Result]] = {}
    for size in sizes:
        programs = executor.alternatives.get(size, (executor.selected(size),))
        wanted = next(expected.split([(size, len(batch.slice(0, size).moves))]))
        results = {}
        for index, program in enumerate(programs):
            name = plan.names.get(id(program), MANY)
            try:
                executor.select(size, program)
                results[index] = Result(*_errors(executor, batch.slice(0, size), wanted))
                found.setdefault(name, {})[size] = results[index]
            except DeviceError as error:
                print(f"   {name} at {size}: {error}", flush=True)
        order = deque(results)
        for _ in range(TURNS):
            order.rotate(-1)
            for index in order:
                executor.select(size, programs[index])
                results[index].times.append(executor.time(size, RUNS))
    return found


def _errors(executor: Executor, batch: PositionBatch, wanted: EvaluationBatch) -> tuple[float, float]:
    return errors(executor.evaluate([batch]), wanted)


def print_results(name: str, found: dict[str, dict[int, Result]], sizes: Sequence[int]) -> bool:
    """Print results, and return True if all are correct."""
    print(f"\n{name:26}" + "".join(f"{f'{size}, ms':>16}" for size in sizes))
    for way, results in found.items():
        cells = []
        for size in sizes:
            result = results.get(size)
            cells.append(
                "-"
                if result is None
                else f"{result.ms:.3f} ({result.logits:.4f})" + " WRONG" * (not result.right)
            )
        print(f"{way:26}" + "".join(f"{cell:>16}" for cell in cells), flush=True)
    return all(result.right for results in found.values() for result in results.values())


def print_layer(executor: Executor, plan: EveryWay, size: int) -> None:
    """Print every launch of the second encoder, and the total of all launches, by way."""
    for program in executor.alternatives.get(size, ()):
        executor.select(size, program)
        launches = executor.profile(size)
        of_layer = [
            f"{step.label.removeprefix('encoder1.')} {1000 * ms:.1f}"
            for step, ms in launches
            if step.label.startswith("encoder1.")
        ]
        way, total = plan.names.get(id(program), MANY), sum(ms for _, ms in launches)
        print(f"   {way} at {size}: {len(launches)} launches, {total:.3f} ms alone; of a layer, us:")
        print(f"      {', '.join(of_layer)}", flush=True)


def print_products(tuner: Tuner, sizes: Sequence[int]) -> None:
    """Print the fastest of each kind for the products of boards."""
    for product, results in sorted(tuner.known.items(), key=lambda item: (item[0].m, item[0].n, item[0].k)):
        if product.m not in [64 * size for size in sizes if size > 1] or product.e4m3:
            continue
        best: dict[str, str] = {}
        for each in results:
            best.setdefault(_kind(each.choice), f"{each.choice} {each.microseconds:.1f}")
        print(f"   {product.m} x {product.n} x {product.k}: {'; '.join(best.values())}", flush=True)


def _kind(choice: Choice) -> str:
    if choice.cluster is not None:
        return "cluster"
    return "wgmma" if choice.hopper is not None else choice.library or "mma"


def compare(
    device: Device, compiler: Compiler, name: str, sizes: tuple[int, ...], layer: int
) -> tuple[bool, dict[str, Any]]:
    """Print all results of a shape; return True if correct, and milliseconds by way and batch size."""
    info = device.info
    network = random_network(name)
    libraries, _ = open_libraries(info, PRECISION)
    tuner = Tuner(device, compiler, PRECISION, libraries, use_cache=False)
    plan = EveryWay(
        network,
        info.target,
        PRECISION,
        tuner.choose,
        blocks=info.multiprocessors,
        measurements=tuner.measurements,
    )
    began = time.perf_counter()
    tuner.expect(lambda: needs_of(plan, sizes, info.multiprocessors))
    executor = Executor(device, compiler, plan, sizes, libraries=libraries, in_flight=1)
    print(
        f"\n{name}: {tuner.measured} products measured, open in {time.perf_counter() - began:.1f} s",
        flush=True,
    )
    found = measured(executor, plan, sizes, network)
    right = print_results(name, found, sizes)
    if layer in sizes:
        print_layer(executor, plan, layer)
        print_products(tuner, [layer])
    executor.close()
    return right, {way: {size: each.ms for size, each in of.items()} for way, of in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", default="bt4,t82,t80")
    parser.add_argument("--batches", default="1,2,4,8,16,32")
    parser.add_argument("--layer", type=int, default=8)
    parser.add_argument(
        "--candidates", type=int, default=12, help="of kernels/gemm_cluster.hip for a product; 0 for none"
    )
    parser.add_argument("--device", default="")
    parser.add_argument("--json", type=Path, help="write milliseconds there too")
    arguments = parser.parse_args()
    sizes = tuple(int(size) for size in arguments.batches.split(","))
    cluster_tiles.MOST_CANDIDATES = arguments.candidates
    began = time.perf_counter()
    try:
        device = open_device(select(found_devices().devices, arguments.device))
    except DeviceError as error:
        raise SystemExit(str(error)) from None
    compiler = Compiler(device)
    right, report = True, {}
    for name in arguments.shapes.split(","):
        fine, report[name] = compare(device, compiler, name, sizes, arguments.layer)
        right &= fine
    print(f"\n{device.info.name}, {time.perf_counter() - began:.0f} s")
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
