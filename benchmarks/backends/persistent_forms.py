"""The forms of the persistent kernel against each other and against many launches, for a few positions.

    python -m benchmarks.backends.persistent_forms [--shapes bt4,t82,t80,256x10,shipped]
        [--batches 1,2,4,8,16] [--forms "NAME; NAME"] [--stamps SHAPE] [--device NAME] [--json FILE]

For each network a line for each form (evaluator/gpu/plan/persistent_form.py): milliseconds of a batch on the
device, the median of eight turns among the forms, and how far the logits are off, over their deviation;
"WRONG" where the self-check would not use it. "-" is what a form cannot compute, which the line below the
table explains. Compiling all forms takes most of the time; --stamps (default bt4, empty for none) adds where
the blocks of one position's launch spend theirs. The exit status is 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluator.backends.probe import probe_batch
from evaluator.backends.reference import ReferenceBackend
from evaluator.gpu.blas.discovery import open_libraries
from evaluator.gpu.blas.library import Library
from evaluator.gpu.driver.compiler import Compiler
from evaluator.gpu.driver.device import Device, DeviceError
from evaluator.gpu.driver.discovery import found_devices, open_device, select
from evaluator.gpu.driver.target import Precision
from evaluator.gpu.plan.needs import MeasuringChooser, needs_of
from evaluator.gpu.plan.persistent_form import EVENTS, STAMPS, PersistentForm
from evaluator.gpu.plan.plan import Plan
from evaluator.gpu.plan.program import Buffer, Launch, Program, Space
from evaluator.gpu.plan.tiles import model_chooser
from evaluator.gpu.run.executor import Executor
from evaluator.gpu.run.self_check import errors, limits
from evaluator.gpu.tuning.tune import Tuner
from evaluator.network import SHIPPED_NETWORK, load_network
from evaluator.network.errors import NetworkError
from evaluator.network.random_network import SHAPES, NetworkShape, random_network
from evaluator.network.spec import NetworkSpec
from protocol.batch import EvaluationBatch, PositionBatch

PRECISION = Precision.FP16
MOST = 8
"""Positions of the largest batch that the kernel can take."""

FORMS = {
    "as it is": PersistentForm(most_positions=MOST),
    "ahead": PersistentForm(weights_ahead=True, most_positions=MOST),
    "padded": PersistentForm(padded_weights=True, most_positions=MOST),
    "logits": PersistentForm(logits_in_attention=True, most_positions=MOST),
    "padded, logits": PersistentForm(padded_weights=True, logits_in_attention=True, most_positions=MOST),
    "all": PersistentForm(
        weights_ahead=True, padded_weights=True, logits_in_attention=True, most_positions=MOST
    ),
    "pairs": PersistentForm(pairs=True, most_positions=MOST),
    "pairs, logits": PersistentForm(pairs=True, logits_in_attention=True, most_positions=MOST),
}
MANY = "many launches"

PHASES = ("squeeze", "q, k, v", "dense2", "generate", "attention", "output", "ffn1", "ffn2")
"""As in kernels/persistent.hip."""

TURNS, RUNS = 8, 15
"""Turns of all forms, each begun by another one, since clocks follow what ran before; and runs in a turn."""
_OTHERS = {
    "t80": replace(SHAPES["t80"], ffn=512),
    "256x10": NetworkShape(256, layers=10, heads=8, ffn=512, smolgen=(16, 128, 128), policy_width=256),
}


@dataclass(slots=True)
class Result:
    """Of a form at a batch size. logits: root mean square error over their deviation. wdl: largest error.
    times: milliseconds on the device, turn by turn."""

    logits: float
    wdl: float
    times: list[float] = field(default_factory=list)

    @property
    def ms(self) -> float:
        """The median turn's."""
        return median(self.times)

    @property
    def right(self) -> bool:
        most_logits, most_wdl = limits(PRECISION)
        return self.logits <= most_logits and self.wdl <= most_wdl


def network_of(name: str) -> NetworkSpec:
    """A shape's random network, or the shipped one."""
    return load_network(SHIPPED_NETWORK) if name == "shipped" else random_network(_OTHERS.get(name, name))


def launch_of(program: Program) -> Launch:
    """The one launch of all encoders."""
    return next(step for step in program.steps if isinstance(step, Launch) and step.cooperative)


def programs(plan: Plan, batches: Sequence[int]) -> list[Program]:
    """Those with one launch."""
    return [program for size in batches for program in plan.persistent_programs(size)]


class Comparison:
    """All forms of one network on a device, open at once.

    forms: by name. problems: what is not computable, in words. Raises DeviceError.
    """

    def __init__(
        self,
        network: NetworkSpec,
        device: Device,
        compiler: Compiler,
        forms: Mapping[str, PersistentForm],
        batches: Sequence[int],
        tuner: MeasuringChooser | None,
        libraries: Sequence[Library] = (),
    ) -> None:
        """tuner: chooses the products of many launches; None for the model."""
        info = device.info
        choose = (
            model_chooser(info.target, PRECISION, info.multiprocessors) if tuner is None else tuner.choose
        )
        first = Plan(network, info.target, PRECISION, choose, blocks=info.multiprocessors)
        if tuner is not None:
            tuner.expect(lambda: needs_of(first, tuple(batches), info.multiprocessors))
        self.network = network
        self.problems: list[str] = []
        self.batches = tuple(batches)
        self.executors: dict[str, Executor] = {}
        for name, form in forms.items():
            plan = replace(first, form=form, weights={})  # shares the packed layers
            try:
                self.executors[name] = Executor(
                    device, compiler, plan, self.batches, libraries=libraries, in_flight=1
                )
            except DeviceError as error:
                self.problems.append(f"{name}: {error}")
        if not self.executors:
            raise DeviceError("; ".join(self.problems))

    def results(self) -> dict[str, dict[int, Result]]:
        """By form, many launches among them, and batch size."""
        batch = probe_batch(max(self.batches), seed=3)
        expected = ReferenceBackend(self.network).evaluate(batch)
        found: dict[str, dict[int, Result]] = {name: {} for name in (MANY, *self.executors)}
        first = next(iter(self.executors))
        order = deque(self.executors.items())
        for _ in range(TURNS):
            order.rotate(-1)
            for name, executor in order:
                for size in self.batches:
                    usual, *others = executor.alternatives.get(size, (executor.selected(size),))
                    if name == first:
                        self._measure(found[MANY], executor, size, usual, batch, expected)
                    for program in others:
                        try:
                            self._measure(found[name], executor, size, program, batch, expected)
                        except DeviceError as error:
                            self.problems.append(f"{name} at {size}: {error}")
        return found

    def _measure(
        self,
        found: dict[int, Result],
        executor: Executor,
        size: int,
        program: Program,
        batch: PositionBatch,
        expected: EvaluationBatch,
    ) -> None:
        executor.select(size, program)
        milliseconds = executor.time(size, RUNS)
        if size not in found:
            result = executor.evaluate([batch.slice(0, size)])
            wanted = next(expected.split([(size, len(result.logits))]))
            found[size] = Result(*errors(result, wanted))
        found[size].times.append(milliseconds)

    def close(self) -> None:
        """Free the device's memory."""
        for executor in self.executors.values():
            executor.close()


def phase_cycles(stamps: NDArray[np.uint64]) -> dict[str, list[float]]:
    """By phase, cycles of the blocks that have a tile: until they may read what the phases before have
    written, until the weights are there, until all is multiplied, until the end is signalled; 0 where nothing
    was noted. stamps: [blocks, layers, phases, EVENTS]; the mean over blocks and layers but the first one."""
    spans: dict[str, list[float]] = {}
    for index, name in enumerate(PHASES):
        of = stamps[:, 1:, index].reshape(-1, EVENTS).astype(np.int64)
        of = of[of[:, -1] > 0]
        if len(of):
            complete = np.where(of > 0, of, np.iinfo(np.int64).min)
            at = np.maximum.accumulate(complete, axis=1)  # what was not noted took no time
            spans[name] = [float(each) for each in np.diff(at, axis=1).mean(axis=0)]
    return spans


def read_stamps(device: Device, executor: Executor, size: int) -> NDArray[np.uint64]:
    """Run the one launch of an executor whose form has stamps, and return them."""
    program = executor.alternatives[size][1]
    launch = launch_of(program)
    stamps = np.zeros(program.work[STAMPS] // 8, np.uint64)
    address = executor.lane.buffers.address(Buffer(Space.WORK, STAMPS), {})
    executor.select(size, program)
    executor.time(size, 1)  # warm
    device.write(address, stamps)
    executor.evaluate([probe_batch(size, seed=3)])
    device.read(address, stamps)
    return stamps.reshape(launch.grid[0], -1, len(PHASES), EVENTS)


def print_results(name: str, found: Mapping[str, Mapping[int, Result]], batches: Sequence[int]) -> bool:
    """Whether all is right."""
    print(f"\n{name:16}" + "".join(f"{f'{size}, ms':>16}" for size in batches))
    right = True
    for form, results in found.items():
        cells = []
        for size in batches:
            result = results.get(size)
            right = right and (result is None or result.right)
            cells.append(
                "-"
                if result is None
                else f"{result.ms:.3f} ({result.logits:.4f})" + " WRONG" * (not result.right)
            )
        print(f"{form:16}" + "".join(f"{cell:>16}" for cell in cells), flush=True)
    return right


def print_stamps(name: str, form: str, spans: Mapping[str, Sequence[float]]) -> None:
    print(f"\n{name}, one position, {form}: cycles of a phase (mean of the blocks that have a tile)")
    print(f"{'':12}{'waits':>8}{'weights':>9}{'multiplies':>12}{'ends':>8}{'sum':>8}")
    for phase, (waits, weights, multiplies, ends) in spans.items():
        total = waits + weights + multiplies + ends
        print(f"{phase:12}{waits:8.0f}{weights:9.0f}{multiplies:12.0f}{ends:8.0f}{total:8.0f}", flush=True)


def stamp(device: Device, compiler: Compiler, name: str, network: NetworkSpec) -> dict[str, Any]:
    """Print where the time of one position goes, by form."""
    noted: dict[str, Any] = {}
    wanted = {form: replace(FORMS[form], stamps=True) for form in ("as it is", "all")}
    comparison = Comparison(network, device, compiler, wanted, [1], None)
    for form, executor in comparison.executors.items():
        if 1 in executor.alternatives:
            noted[form] = phase_cycles(read_stamps(device, executor, 1))
            print_stamps(name, form, noted[form])
    comparison.close()
    return noted


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", default="bt4,t82,t80,256x10,shipped")
    parser.add_argument("--batches", default="1,2,4,8,16")
    parser.add_argument("--forms", default=";".join(FORMS), help="names, separated by semicolons")
    parser.add_argument("--stamps", default="bt4", help="a shape, or empty")
    parser.add_argument("--device", default="")
    parser.add_argument("--json", type=Path, help="write everything there too")
    arguments = parser.parse_args()
    batches = [int(size) for size in arguments.batches.split(",")]
    names = [name.strip() for name in arguments.forms.split(";")]
    if unknown := [name for name in names if name not in FORMS]:
        parser.error(f"there is no form {unknown[0]!r}; there are: {'; '.join(FORMS)}")
    forms = {name: FORMS[name] for name in names}
    began = time.perf_counter()
    try:
        device = open_device(select(found_devices().devices, arguments.device))
    except DeviceError as error:
        raise SystemExit(str(error)) from None
    if not device.info.cooperative:
        raise SystemExit(f"{device.info.name} has no launches whose blocks wait for each other")
    libraries, _ = open_libraries(device.info, PRECISION)
    compiler = Compiler(device)
    try:
        networks = {name: network_of(name) for name in filter(None, arguments.shapes.split(","))}
    except NetworkError as error:
        raise SystemExit(str(error)) from None
    start_compiling(device, compiler, networks, forms, batches, arguments.stamps)
    report: dict[str, Any] = {}
    right = True
    for name, network in networks.items():
        tuner = Tuner(device, compiler, PRECISION, libraries)
        try:
            comparison = Comparison(network, device, compiler, forms, batches, tuner, libraries)
        except DeviceError as error:
            print(f"\n{name}: {error}", flush=True)
            right = False
            continue
        tuner.save()
        found = comparison.results()
        comparison.close()
        right &= print_results(name, found, batches)
        for problem in comparison.problems:
            print(f"   {problem}", flush=True)
        report[name] = {
            form: {size: [each.ms, each.logits, each.wdl] for size, each in results.items()}
            for form, results in found.items()
        }
    if arguments.stamps in networks:
        report["cycles"] = stamp(device, compiler, arguments.stamps, networks[arguments.stamps])
    print(f"\n{device.info.name}, {time.perf_counter() - began:.0f} s")
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))
    sys.exit(0 if right else 1)


def start_compiling(
    device: Device,
    compiler: Compiler,
    networks: Mapping[str, NetworkSpec],
    forms: Mapping[str, PersistentForm],
    batches: Sequence[int],
    stamps: str,
) -> None:
    """Begin with the kernels of all forms, which take longest."""
    info = device.info
    choose = model_chooser(info.target, PRECISION, info.multiprocessors)
    for name, network in networks.items():
        plan = Plan(network, info.target, PRECISION, choose, blocks=info.multiprocessors)
        made = [each for form in forms.values() for each in programs(replace(plan, form=form), batches)]
        if name == stamps:
            for form in ("as it is", "all"):
                made += programs(replace(plan, form=replace(FORMS[form], stamps=True)), [1])
        compiler.start(launch_of(program).kernel for program in made)


if __name__ == "__main__":
    main()
