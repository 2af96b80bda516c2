# SPDX-License-Identifier: GPL-3.0-or-later
"""Benchmark of one matrix product on a device: runs any choice, compares it with the host, and times it.

A choice is timed with its additional passes (adding up splits, activation, norm), many times in one graph,
with weights outside the chip's cache: the same as in a network.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from evaluator.backends.common.device_lease import DeviceLease, exclusive_lease
from evaluator.backends.gpu.blas.library import Library
from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.compiler import Compiler, KernelKey
from evaluator.backends.gpu.driver.device import Gpu
from evaluator.backends.gpu.driver.target import Precision, Target
from evaluator.backends.gpu.plan import weights as pack
from evaluator.backends.gpu.plan.builder import ProgramBuilder
from evaluator.backends.gpu.plan.products.epilogue import After
from evaluator.backends.gpu.plan.products.gemm_hopper import ROW_COUNTERS
from evaluator.backends.gpu.plan.products.launches import linear
from evaluator.backends.gpu.plan.products.linear_layer import E4m3Scales, Linear
from evaluator.backends.gpu.plan.program import Branch, Buffer, LibraryStep, Matrix, Program, Space
from evaluator.backends.gpu.plan.quantised import Packed
from evaluator.backends.gpu.plan.tiles import Choice
from evaluator.backends.gpu.run.launching import RepeatedLaunch, multiply
from evaluator.backends.gpu.tuning.samples import E4M3_DEVIATION, RESIDUAL_AT, Copies, Samples, exact
from evaluator.network.arithmetic import activate, layer_norm
from evaluator.network.spec import LayerNorm

T = TypeVar("T")

_WEIGHTS = (
    "weights",
    "fragments",
    "codes",
    "scales",
    "biases",
    "library_biases",
    "gammas",
    "betas",
)
"""Arrays of a product that are on the device already, so that a ProgramBuilder need not make them."""

_CHECKED_ROWS = 16
"""Compared rows, evenly spread including the first and last, over their whole width."""

_LIMITS = {Precision.FP16: (0.02, 0.2), Precision.BF16: (0.02, 0.2), Precision.FP32: (1e-4, 1e-3)}
"""Limits of the root mean square and the largest error, relative to the root mean square of the result.
Rounding gives 1e-3 and 1e-2 in fp16; a single unwritten element gives about 1 in the latter."""

_STORED = {Precision.FP16: np.float16, Precision.BF16: np.uint16, Precision.FP32: np.float32}
_BITS = {Precision.FP16: np.int16, Precision.BF16: np.int16, Precision.FP32: np.int32}

_FIRST_RUNS, _FIRST_US = 6, 200.0
"""First look at a choice: runs in one graph (at least two), and their maximum total time."""

_MOST_RUNS, _MEASURE_US = 64, 500.0
"""Second look at a choice, likewise."""

_LEAST_US = 1.0

_TURNS, _TURN_US = 4, 2000.0
"""Number of alternating turns of compared choices, and the length of a turn."""

_EPSILON = 1e-3


class TooSlow(Exception):  # noqa: N818 - named for what happened
    """A call did not return in time. It may still run and use its arguments."""


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of a result relative to its root mean square; NaN if the result has any."""

    mean_square: float
    largest: float

    def within(self, precision: Precision) -> bool:
        mean_square, largest = _LIMITS[precision]
        return self.mean_square <= mean_square and self.largest <= largest


class Bench:
    """Memory for one product. All choices run on the same random operands."""

    def __init__(
        self,
        device: Gpu,
        compiler: Compiler,
        libraries: Sequence[Library],
        product: Product,
        samples: Samples,
        lease: DeviceLease = exclusive_lease,
    ) -> None:
        """samples: operands in the product's precision; an abandoned bench abandons them, too. lease: of the
        device, for all timing."""
        self._device, self._compiler, self._precision = device, compiler, samples.precision
        self._libraries = {library.name: library for library in libraries}
        self._product = product
        self._samples = samples
        self._lease = lease
        self._allocated: list[int] = []
        self._buffers: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self._copies: dict[str, Copies] = {}
        self._handles: list[Any] = []
        self._first_best = math.inf
        self.rows = np.unique(np.linspace(0, product.m - 1, _CHECKED_ROWS).astype(int))
        """Compared rows of the result."""

    def __enter__(self) -> Bench:
        try:
            self._prepare()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _prepare(self) -> None:
        product = self._product
        own = product.m * _width(product)
        skipped = RESIDUAL_AT + product.m * product.n if product.residual else 0
        elements = self._samples.inputs(skipped if product.e4m3 else max(own, skipped))
        self._buffers["a"] = self._samples.inputs(own, e4m3=True) if product.e4m3 else elements
        self._buffers["residual"] = elements + RESIDUAL_AT * self._precision.bytes
        self._weights = weights = self._samples.weights(
            product.n, product.k, product.weight_bits, e4m3=product.e4m3
        )
        self._copies["product.weights"] = weights.plain
        if weights.fragments is not None:
            self._copies["product.fragments"] = weights.fragments
        if weights.codes is not None and weights.scales is not None:
            self._copies |= {"product.codes": weights.codes, "product.scales": weights.scales}
        shape = (64 if product.bias_by_square else 1, product.n)
        biases = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
        for name, values in (
            ("product.biases", biases),
            ("product.library_biases", pack.stored(biases, self._precision)),
            ("product.gammas", biases),
            ("product.betas", biases),
            ("row_counters", np.zeros(ROW_COUNTERS, np.uint32)),
        ):
            self._buffers[name] = self._allocate(values.nbytes)
            self._device.write(self._buffers[name], np.ascontiguousarray(values))
        space = max((library.workspace for library in self._libraries.values()), default=0)
        self._workspace = self._allocate(space)
        self._stream = self._kept(self._device.create_stream())
        self._start, self._end = (self._kept(self._device.create_event(timing=True)) for _ in range(2))
        self._expected = self._reference(biases)

    def _kept(self, handle: Any) -> Any:
        self._handles.append(handle)
        return handle

    def __exit__(self, *_: object) -> None:
        if self._samples.abandoned:  # a running call may still write into the memory
            return
        for handle in self._handles:
            self._device.release(handle)
        for address in self._allocated:
            self._device.free(address)

    def errors(self, choice: Choice, seconds: float = float("inf")) -> Errors:
        """Return the errors of a choice. It runs outside a graph, because a library's first call may load or
        compile code. Raises TooSlow if it takes longer than `seconds`."""
        program = self._program(choice)
        self._kernels(program)
        # Fill with NaN to detect unwritten elements, also those that relu would turn into 0.
        libraries = [step.out.name for step in program.steps if isinstance(step, LibraryStep)]
        for name in {"out", *libraries}:
            self._write_rows(name, np.full(self._expected.shape, -1, _BITS[self._precision]))  # NaN
        if math.isinf(seconds):
            self._run(program)
        else:
            self.within(seconds, lambda: self._run(program))
        difference = self._read_rows("out") - self._expected
        for name in libraries:
            difference[np.isnan(self._read_rows(name))] = np.nan
        scale = float(np.sqrt(np.square(self._expected).mean())) or 1.0
        return Errors(
            float(np.sqrt(np.square(difference).mean())) / scale, float(np.abs(difference).max()) / scale
        )

    def scratch_bytes(self, choice: Choice) -> int:
        """Return the most memory that a kernel of a choice uses per thread outside the registers."""
        return max(
            (self._compiler.scratch_bytes(key) for key, _ in self._program(choice).kernels()), default=0
        )

    def first_look(self, choice: Choice) -> float:
        """Return a rough time of one run, with fewer runs if other choices were far faster. Call `errors`
        before."""
        best = self._first_best
        runs = _FIRST_RUNS if math.isinf(best) else _runs(best, _FIRST_US, _FIRST_RUNS)
        once = self.time(self._program(choice), runs)
        self._first_best = min(best, once)
        return once

    def second_look(self, choice: Choice, once: float) -> float:
        """Return the time of one run among many. once: result of the first look."""
        return self.time(self._program(choice), _runs(once, _MEASURE_US, _MOST_RUNS))

    def in_turns(self, choices: Sequence[Choice], about_us: float) -> list[float]:
        """Return the microseconds of a run of each, measured in alternating turns. A chip at its power limit
        lowers its clock during a measurement, which would favour the first choice. about_us: rough time of a
        run."""
        graphs = [self._graph(self._program(each), _runs(about_us, _TURN_US, _MOST_RUNS)) for each in choices]
        turns = [[self._run_in_slice(graph) for graph in graphs] for _ in range(1 + _TURNS)]
        for graph, _ in graphs:
            self._device.release(graph)
        return [sum(times) / _TURNS for times in zip(*turns[1:], strict=True)]

    def within(self, seconds: float, work: Callable[[], T]) -> T:
        """Return what `work` returns or raises, on a thread of its own. Raises TooSlow after the given time;
        the thread then continues, and this product's memory stays allocated."""
        results: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                self._device.activate()
                results.append(work())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run, name="matrix product", daemon=True)
        thread.start()
        thread.join(seconds)
        if thread.is_alive():
            self._samples.abandoned = True
            raise TooSlow(f"no answer within {seconds:g} s")
        if errors:
            raise errors[0]
        return results[0]

    def _run(self, program: Program) -> None:
        self._queue(self._launches(program), 0, first=True)
        self._device.record(self._end, self._stream)
        self._device.synchronize(self._end)

    def _kernels(self, program: Program) -> dict[tuple[KernelKey, int], Any]:
        return self._compiler.load(list(program.kernels()))

    def time(self, program: Program, runs: int) -> float:
        """Return the microseconds of a run. A graph of `runs` runs is launched once to warm up, then the
        better of two measurements counts."""
        graph = self._graph(program, runs)
        with self._lease():
            times = [self._run_graph(graph) for _ in range(3)]
        self._device.release(graph[0])
        return max(min(times[1:]), _LEAST_US)

    def _graph(self, program: Program, runs: int) -> tuple[Any, int]:
        """Return a graph of `runs` runs, and their number."""
        device, stream = self._device, self._stream
        launches = self._launches(program)
        device.begin_capture(stream)
        try:
            for run in range(runs):
                self._queue(launches, run, first=run == 0)
        except BaseException:
            device.abandon_capture(stream)
            raise
        return device.end_capture(stream), runs

    def _run_graph(self, graph: tuple[Any, int]) -> float:
        """Return the microseconds of one run in the graph."""
        device, stream = self._device, self._stream
        device.record(self._start, stream)
        device.launch_graph(graph[0], stream)
        device.record(self._end, stream)
        device.synchronize(self._end)
        return device.milliseconds(self._start, self._end) * 1000 / graph[1]

    def _run_in_slice(self, graph: tuple[Any, int]) -> float:
        with self._lease():
            return self._run_graph(graph)

    def _launches(self, program: Program) -> list[LibraryStep | RepeatedLaunch]:
        """Return the steps of a program, prepared for repeated queueing."""
        kernels, device = self._kernels(program), self._device
        return [
            step
            if isinstance(step, LibraryStep)
            else RepeatedLaunch(
                device, kernels[step.kernel, step.shared_bytes], step, self._address, self._copies
            )
            for step in program.steps
            if not isinstance(step, Branch)
        ]

    def _queue(self, launches: Sequence[LibraryStep | RepeatedLaunch], copy: int, *, first: bool) -> None:
        """Queue one run with one of the copies of the weights, used cyclically. first: no kernel is queued
        that it could overlap with."""
        for launch in launches:
            if isinstance(launch, LibraryStep):
                library = self._libraries[launch.library]
                multiply(
                    library, launch, lambda buffer: self._address(buffer, copy), self._workspace, self._stream
                )
            else:
                launch.queue(copy, self._stream, overlap=not first)
            first = False

    def _program(self, choice: Choice) -> Program:
        target = self._device.info.target
        program = trial(self._product, choice, target, self._precision, self._weights.packed)
        for name, size in program.work.items():
            if self._sizes.get(name, 0) < size:
                self._buffers[name] = self._allocate(size)
                self._sizes[name] = size
        return program

    def _reference(self, biases: Any) -> Any:
        """Return the compared rows, computed on the host from the same operands."""
        product, rows = self._product, self.rows
        width = _width(product)
        if product.convolution:
            x: Any = np.zeros((len(rows), 3, 3, width), self._weights.exact.dtype)
            for index, row in enumerate(rows):
                board = self._samples.rows(row - row % 64 + np.arange(64), width)
                padded = np.pad(board.reshape(8, 8, -1), ((1, 1), (1, 1), (0, 0)))
                rank, file = divmod(row % 64, 8)
                x[index] = padded[rank : rank + 3, file : file + 3]
            x = x.reshape(len(rows), -1)
        else:
            x = self._samples.rows(rows, width, e4m3=product.e4m3)
        x = x @ self._weights.exact.T
        if product.e4m3:
            x *= _sum_scale(product)
        if product.bias:
            x += biases[rows % 64] if product.bias_by_square else biases
        if product.residual:
            x += self._samples.rows(rows, product.n, RESIDUAL_AT)
        x = activate(product.activation, x)
        return layer_norm(LayerNorm(biases[0], biases[0], _EPSILON), x) if product.followed else x

    def _read_rows(self, name: str) -> Any:
        """Return [compared rows, n] of a matrix like the result, as `samples.exact` does."""
        found = np.empty(self._expected.shape, _BITS[self._precision])
        for values, row in zip(found, self.rows, strict=True):
            self._device.read(self._buffers[name] + int(row) * values.nbytes, values)
        return exact(found.view(_STORED[self._precision]), self._precision)

    def _write_rows(self, name: str, bits: Any) -> None:
        for values, row in zip(bits, self.rows, strict=True):
            self._device.write(self._buffers[name] + int(row) * values.nbytes, values)

    def _address(self, buffer: Buffer, copy: int) -> int:
        copies = self._copies.get(buffer.name)
        return self._buffers[buffer.name] if copies is None else copies[copy]

    def _allocate(self, size: int) -> int:
        address = self._device.allocate(size)
        self._allocated.append(address)
        return address


def trial(
    product: Product, choice: Choice, target: Target, precision: Precision, packed: Packed | None = None
) -> Program:
    """Return the launches that compute a single product by a choice. packed: its weights as codes, if any.
    Buffers are named "a", "residual", "out" and "product.…"."""
    known = dict.fromkeys([f"product.{name}" for name in _WEIGHTS], np.zeros(0))
    b = ProgramBuilder(product.m, target, precision, lambda _: choice, known)
    inputs = _width(product)
    a = Matrix(Buffer(Space.WORK, "a"), product.m, inputs, inputs)
    if product.segment:
        a = replace(a, stride=product.segment, segment=product.segment)
    eight = E4m3Scales(1.0, _sum_scale(product)) if product.e4m3 else None
    if eight is not None:
        a = replace(a, inputs=eight.rounding)
    rows = (64, product.n) if product.bias_by_square else (product.n,)
    layer = Linear(
        "product",
        product.n,
        np.broadcast_to(np.float32(0), (product.n, product.k)),
        np.broadcast_to(np.float32(0), rows) if product.bias else None,
        product.activation,
        product.convolution,
        packed,
        eight,
    )
    residual = Matrix(Buffer(Space.WORK, "residual"), product.m, product.n, product.n)
    ones = np.ones(0, np.float32)
    linear(
        b,
        layer,
        a,
        "out",
        residual=residual if product.residual else None,
        after=After(LayerNorm(ones, ones, _EPSILON)) if product.followed else None,
    )
    return b.program


def _sum_scale(product: Product) -> float:
    """Return the factor that scales sums of random e4m3 products to standard deviation 1."""
    return float(E4M3_DEVIATION**-2 * (2 * product.k) ** -0.5)


def _runs(once: float, together: float, most: int) -> int:
    """Return how many runs of `once` microseconds make up a graph of `together`."""
    return int(min(most, max(2, together / once)))


def _width(product: Product) -> int:
    """Return the elements per input row."""
    return product.k // 9 if product.convolution else product.k
