"""One matrix product on a device: run any choice for it, compare with float64 on the host, and time it.

A choice is timed with everything it brings along (the passes that add up splits, apply an activation or
normalise), many times in one graph, with weights that are not in the chip's cache: as it runs in a network.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from evaluator.backends.reference import activate, layer_norm
from evaluator.gpu import weights as pack
from evaluator.gpu.builder import Builder
from evaluator.gpu.compiler import Compiler, KernelKey
from evaluator.gpu.device import Device
from evaluator.gpu.gemm import Choice, Product
from evaluator.gpu.launching import multiply, queue
from evaluator.gpu.library import Library
from evaluator.gpu.packed import Packed, WeightFormat, rounded
from evaluator.gpu.packed import pack as pack_codes
from evaluator.gpu.products import ROW_COUNTERS
from evaluator.gpu.program import Branch, Buffer, LibraryStep, Matrix, Program, Space
from evaluator.gpu.steps import After, Linear
from evaluator.gpu.target import Precision
from evaluator.network.spec import LayerNorm

T = TypeVar("T")

_WEIGHTS_BYTES = 96 << 20
"""Copies of the weights that are read in turn: more than the L2 of any GPU."""

_MOST_COPIES = 64

_WEIGHTS = ("weights", "codes", "scales", "biases", "library_biases", "gammas", "betas")
"""Of a product: what the Builder need not make, because it is on the device already."""

_CHECKED_ROWS = 16
"""Evenly spread, the first and the last among them, each over its whole width."""

_LIMITS = {Precision.FP16: (0.02, 0.2), Precision.BF16: (0.02, 0.2), Precision.FP32: (1e-4, 1e-3)}
"""Of the root mean square and of the largest error, over the root mean square of the result. Rounding gives
1e-3 and 1e-2 in fp16; a single element that nobody wrote gives about 1 in the latter."""

_STORED = {Precision.FP16: np.float16, Precision.BF16: np.uint16, Precision.FP32: np.float32}
_BITS = {Precision.FP16: np.int16, Precision.BF16: np.int16, Precision.FP32: np.int32}

_MEASURE_MS = 1.0

_EPSILON = 1e-3


class TooSlow(Exception):  # noqa: N818 - named for what happened
    """Something did not return in time. It may still be running, and hold whatever it was given."""


@dataclass(frozen=True, slots=True)
class Errors:
    """Of a result, relative to its root mean square. NaN where it has any."""

    mean_square: float
    largest: float

    def within(self, precision: Precision) -> bool:
        mean_square, largest = _LIMITS[precision]
        return self.mean_square <= mean_square and self.largest <= largest


class Bench:
    """Memory and random operands for one product; the choices are run on the same ones."""

    def __init__(
        self,
        device: Device,
        compiler: Compiler,
        precision: Precision,
        libraries: Sequence[Library],
        product: Product,
    ) -> None:
        self._device, self._compiler, self._precision = device, compiler, precision
        self._libraries = {library.name: library for library in libraries}
        self._product = product
        self._allocated: list[int] = []
        self._buffers: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self._copies: dict[str, tuple[int, int]] = {}
        self._packed: Packed | None = None
        self._rng = np.random.default_rng(1)
        self._handles: list[Any] = []
        self._abandoned = False
        self.rows = np.unique(np.linspace(0, product.m - 1, _CHECKED_ROWS).astype(int))
        """Those that are compared."""

    def __enter__(self) -> Bench:
        try:
            self._prepare()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _prepare(self) -> None:
        product, precision = self._product, self._precision
        width = product.k // 9 if product.convolution else product.k
        inputs = self._fill("a", (product.m, width), 1.0)
        weights = self._random((product.n, product.k), product.k**-0.5)
        if product.weight_bits:
            form = next(each for each in WeightFormat if each.bits == product.weight_bits)
            weights = pack.stored(rounded(weights.astype(np.float32), form), precision)
            self._packed = pack_codes(weights, form, self._device.info.target.matrix_unit(precision))
            assert self._packed is not None
            self._buffers["product.scales"] = self._allocate(self._packed.scales.nbytes)
            self._device.write(self._buffers["product.scales"], self._packed.scales)
            self._copy("product.codes", self._packed.codes)
        self._copy("product.weights", weights)
        skip = self._fill("residual", (product.m, product.n), 1.0) if product.residual else None
        biases = self._rng.standard_normal((64 if product.bias_by_square else 1, product.n)).astype(
            np.float32
        )
        for name, values in (
            ("product.biases", biases),
            ("product.library_biases", pack.stored(biases, precision)),
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
        self._expected = self._reference(inputs, weights, biases, skip)

    def _kept(self, handle: Any) -> Any:
        self._handles.append(handle)
        return handle

    def __exit__(self, *_: object) -> None:
        if self._abandoned:  # what still runs would write into memory that is somebody else's by then
            return
        for handle in self._handles:
            self._device.release(handle)
        for address in self._allocated:
            self._device.free(address)

    def errors(self, choice: Choice, seconds: float = float("inf")) -> Errors:
        """How far off a choice is. It runs outside of any graph: the first call of a library's algorithm may
        load or compile what it needs. Raises TooSlow if it takes longer than that."""
        program = self._program(choice)
        self._kernels(program)
        # What nobody writes shows, and what a library did not finish does even if relu makes 0 of it.
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

    def microseconds(self, choice: Choice) -> float:
        """Of one run among many, the best of three measurements. `errors` must have come before."""
        program = self._program(choice)
        once = self._time(program, 2) / 2
        repeats = int(min(64, max(4, _MEASURE_MS * 1000 / max(once, 1.0))))
        return min(self._time(program, repeats) / repeats for _ in range(2))

    def within(self, seconds: float, work: Callable[[], T]) -> T:
        """What work returns or raises, done by a thread of its own. Raises TooSlow after so many seconds; the
        thread then goes on, and this product's memory stays allocated for it."""
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
            self._abandoned = True
            raise TooSlow(f"no answer within {seconds:g} s")
        if errors:
            raise errors[0]
        return results[0]

    def _run(self, program: Program) -> None:
        self._queue(program, self._kernels(program), 0, first=True)
        self._device.record(self._end, self._stream)
        self._device.synchronize(self._end)

    def compile(self, choices: Iterable[Choice]) -> None:
        """All their kernels at once, on all cores."""
        self._compiler.load([key for choice in choices for key in self._program(choice).kernels()])

    def _kernels(self, program: Program) -> dict[tuple[KernelKey, int], Any]:
        return self._compiler.load(list(program.kernels()))

    def _time(self, program: Program, repeats: int) -> float:
        """Microseconds of `repeats` runs in one graph, after one that warms up."""
        device, stream = self._device, self._stream
        kernels = self._kernels(program)
        device.begin_capture(stream)
        try:
            for repeat in range(repeats):
                self._queue(program, kernels, repeat, first=repeat == 0)
        except BaseException:
            device.abandon_capture(stream)
            raise
        graph = device.end_capture(stream)
        for _ in range(2):
            device.record(self._start, stream)
            device.launch_graph(graph, stream)
            device.record(self._end, stream)
            device.synchronize(self._end)
        device.release(graph)
        return device.milliseconds(self._start, self._end) * 1000

    def _queue(
        self, program: Program, kernels: dict[tuple[KernelKey, int], Any], copy: int, *, first: bool
    ) -> None:
        """One run with one copy of the weights; they take turns. first: nothing has been queued that it could
        overlap with."""
        address = partial(self._address, copy=copy)
        for step in program.steps:
            if isinstance(step, LibraryStep):
                library = self._libraries[step.library]
                multiply(library, step, address, self._workspace, self._stream)
            elif not isinstance(step, Branch):
                kernel = kernels[step.kernel, step.shared_bytes]
                queue(self._device, kernel, step, address, self._stream, overlap=not first)
            first = False

    def _program(self, choice: Choice) -> Program:
        product = self._product
        known = dict.fromkeys([f"product.{name}" for name in _WEIGHTS], np.zeros(0))
        builder = Builder(product.m, self._device.info.target, self._precision, lambda _: choice, known)
        inputs = product.k // 9 if product.convolution else product.k
        a = Matrix(Buffer(Space.WORK, "a"), product.m, inputs, inputs)
        if product.segment:
            a = replace(a, stride=product.segment, segment=product.segment)
        rows = (64, product.n) if product.bias_by_square else (product.n,)
        layer = Linear(
            "product",
            product.n,
            np.broadcast_to(np.float32(0), (product.n, product.k)),
            np.broadcast_to(np.float32(0), rows) if product.bias else None,
            product.activation,
            product.convolution,
            self._packed,
        )
        residual = Matrix(Buffer(Space.WORK, "residual"), product.m, product.n, product.n)
        ones = np.ones(0, np.float32)
        builder.linear(
            layer,
            a,
            "out",
            residual=residual if product.residual else None,
            after=After(LayerNorm(ones, ones, _EPSILON)) if product.followed else None,
        )
        for name, size in builder.program.work.items():
            if self._sizes.get(name, 0) < size:
                self._buffers[name] = self._allocate(size)
                self._sizes[name] = size
        return builder.program

    def _reference(self, inputs: Any, weights: Any, biases: Any, skip: Any) -> Any:
        """The rows that are compared, in float64 from the very same operands."""
        product, precision, rows = self._product, self._precision, self.rows
        if product.convolution:
            x = np.zeros((len(rows), 3, 3, inputs.shape[1]))
            for index, row in enumerate(rows):
                board = _exact(inputs[row - row % 64 : row - row % 64 + 64], precision)
                padded = np.pad(board.reshape(8, 8, -1), ((1, 1), (1, 1), (0, 0)))
                rank, file = divmod(row % 64, 8)
                x[index] = padded[rank : rank + 3, file : file + 3]
            x = x.reshape(len(rows), -1)
        else:
            x = _exact(inputs[rows], precision)
        x = x @ _exact(weights, precision).T
        if product.bias:
            x += biases[rows % 64] if product.bias_by_square else biases
        if skip is not None:
            x += _exact(skip[rows], precision)
        x = activate(product.activation, x)
        return layer_norm(LayerNorm(biases[0], biases[0], _EPSILON), x) if product.followed else x

    def _read_rows(self, name: str) -> Any:
        """float64 [compared rows, n] of a matrix like the result."""
        found = np.empty(self._expected.shape, _BITS[self._precision])
        for values, row in zip(found, self.rows, strict=True):
            self._device.read(self._buffers[name] + int(row) * values.nbytes, values)
        return _exact(found.view(_STORED[self._precision]), self._precision)

    def _write_rows(self, name: str, bits: Any) -> None:
        for values, row in zip(bits, self.rows, strict=True):
            self._device.write(self._buffers[name] + int(row) * values.nbytes, values)

    def _address(self, buffer: Buffer, copy: int) -> int:
        count, stride = self._copies.get(buffer.name, (1, 0))
        return self._buffers[buffer.name] + copy % count * stride

    def _copy(self, name: str, weights: Any) -> None:
        """Several copies of weights."""
        stride = pack.round_up(weights.nbytes, 256)
        count = max(1, min(_MOST_COPIES, _WEIGHTS_BYTES // stride))
        self._copies[name] = count, stride
        self._buffers[name] = self._allocate(count * stride)
        for copy in range(count):
            self._device.write(self._buffers[name] + copy * stride, weights)

    def _allocate(self, size: int) -> int:
        address = self._device.allocate(size)
        self._allocated.append(address)
        return address

    def _random(self, shape: tuple[int, int], scale: float) -> Any:
        """Random elements; a block of them over and over, of a length that leaves no two rows the same."""
        block = self._rng.standard_normal((1 << 18) + 1, np.float32) * np.float32(scale)
        return np.resize(pack.stored(block, self._precision), shape)

    def _fill(self, name: str, shape: tuple[int, int], scale: float) -> Any:
        values = self._random(shape, scale)
        self._buffers[name] = self._allocate(values.nbytes)
        self._device.write(self._buffers[name], values)
        return values


def _exact(values: Any, precision: Precision) -> Any:
    """Stored elements in float64."""
    if precision is Precision.BF16:
        values = (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values.astype(np.float64)
