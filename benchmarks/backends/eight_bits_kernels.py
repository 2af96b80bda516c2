"""Programs on a real GPU, launch by launch, and every kernel of precision=fp8 and int8 beside numpy. Used by
eight_bits_on_gpu.py, which says what is printed."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluator.gpu.blas.product import Product
from evaluator.gpu.driver.compiler import Compiler, KernelKey
from evaluator.gpu.driver.device import Device
from evaluator.gpu.driver.target import Precision, Target
from evaluator.gpu.plan.builder import ProgramBuilder
from evaluator.gpu.plan.hopper import AttentionTile, HopperTile
from evaluator.gpu.plan.products.epilogue import After
from evaluator.gpu.plan.products.launches import linear
from evaluator.gpu.plan.products.linear_layer import E4m3Scales, Int8Scales, Linear
from evaluator.gpu.plan.program import Branch, LibraryStep, Matrix, Program, Step
from evaluator.gpu.plan.steps import attention, projected_attention
from evaluator.gpu.plan.tiles import Choice, Tile, candidates, model_chooser
from evaluator.gpu.run.launching import queue
from evaluator.network import e4m3, int8
from evaluator.network.arithmetic import activate, softmax
from evaluator.network.e4m3 import E4m3Inputs
from evaluator.network.eight_bits import EightBits
from evaluator.network.int8 import Int8Inputs
from evaluator.network.spec import Activation, LayerNorm, RoundedInputs

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

DEVIATIONS = {EightBits.E4M3: 8.0, EightBits.INT8: 32.0}
"""Of random numbers of 8 bits."""

PRECISION = Precision.FP16

# --- running programs launch by launch ----------------------------------------------------------------------


class NotRun(Exception):  # noqa: N818 - no error
    """A program was only planned."""


class Runner:
    def __init__(self, device: Device) -> None:
        self.device = device
        self.target: Target = device.info.target
        self.compiler = Compiler(device)
        self.wrong = 0
        self.wanted: dict[tuple[KernelKey, int], None] | None = None
        """If not None, programs are not run, but their kernels noted here, to be compiled side by side."""

    def run(
        self,
        program: Program,
        arrays: dict[str, NDArray[Any]],
        after: Callable[[Step, Callable[[str], Bytes]], None] = lambda *_: None,
    ) -> dict[str, Bytes]:
        """Run every launch twice, as the second finds what the first has left. arrays: buffers that the
        program does not know. after: is called with each step, and with what reads a buffer, in the second
        run. Returns what the work buffers hold at the end. Memory begins as NaN."""
        if self.wanted is not None:
            self.wanted |= program.kernels()
            raise NotRun
        device = self.device
        work = {name: np.full(size, 0x7F, np.uint8) for name, size in program.work.items()}
        everything = {**work, **program.weights, **arrays}
        addresses: dict[str, int] = {}
        kernels = self.compiler.load(list(program.kernels()))
        stream, event = device.create_stream(), device.create_event()

        def read(name: str) -> Bytes:
            device.record(event, stream)
            device.synchronize(event)
            result = np.empty(everything[name].nbytes, np.uint8)
            device.read(addresses[name], result)
            return result

        try:
            for name, array in everything.items():
                addresses[name] = device.allocate(max(16, array.nbytes))
                device.write(addresses[name], np.ascontiguousarray(array))
            for repeat in range(2):
                for step in program.steps:
                    if isinstance(step, LibraryStep | Branch):
                        continue
                    kernel = kernels[step.kernel, step.shared_bytes]
                    queue(device, kernel, step, lambda buffer: addresses[buffer.name], stream, overlap=False)
                    if repeat:
                        after(step, read)
            return {name: read(name) for name in work}
        finally:
            for address in addresses.values():
                device.free(address)

    def report(
        self, label: str, found: Floats, right: Floats, allowed: Floats, outliers: float = 0.0
    ) -> None:
        """Print one line about an array, four more if it is wrong. allowed: how far each number may be.
        outliers: the share of those that may be farther."""
        off = np.abs(found - right)
        bad = ~(off <= allowed)
        size = float(np.sqrt(np.square(right).mean())) or 1.0
        text = f"rms {np.sqrt(np.square(off).mean()) / size:.1e} largest {off.max() / size:.1e}"
        if bad.mean() <= outliers:
            print(f"ok     {label}: {text}", flush=True)
            return
        self.wrong += 1
        nan = np.isnan(found).mean()
        print(f"WRONG  {label}: {text}, {bad.mean():.2%} of {found.shape} wrong, NaN {nan:.2%}")
        if self.wrong > 12:
            return
        row, column = np.argwhere(bad)[0]
        rows, columns = bad.any(1).nonzero()[0], bad.any(0).nonzero()[0]
        ratio = (found / np.where(right == 0, np.nan, right))[bad]
        wrong, wanted = found[row, column], right[row, column]
        print(f"       first at ({row}, {column}): {wrong:.5g}, right is {wanted:.5g}")
        print(f"       {len(rows)} rows {_span(rows)}, {len(columns)} columns {_span(columns)}")
        quartiles = np.nanpercentile(ratio, [5, 50, 95]) if np.isfinite(ratio).any() else [np.nan] * 3
        print("       found / right, 5, 50 and 95 %: " + ", ".join(f"{each:.4g}" for each in quartiles))
        near = slice(column // 8 * 8, column // 8 * 8 + 8)
        print(f"       found {np.round(found[row, near], 3)}")
        print(f"       right {np.round(right[row, near], 3)}", flush=True)


def _span(places: NDArray[Any]) -> str:
    if len(places) > 6:
        return f"{places[:4].tolist()}…{places[-2:].tolist()}"
    return str(places.tolist())


def elements(memory: dict[str, Bytes], matrix: Matrix) -> Floats:
    values = memory[matrix.buffer.name][: 2 * matrix.rows * matrix.stride].view(np.float16)
    return values.reshape(matrix.rows, matrix.stride)[:, : matrix.width].astype(np.float32)


def codes_of(form: EightBits, values: Floats) -> NDArray[Any]:
    """Numbers of a format as its bits."""
    return values.astype(np.int8) if form is EightBits.INT8 else e4m3.codes(values)


def numbers(memory: dict[str, Bytes], matrix: Matrix) -> Floats:
    """The numbers of a matrix of pairs."""
    bits = memory[matrix.buffer.name][: 2 * matrix.rows * matrix.stride].reshape(matrix.rows, -1)
    return (
        bits.view(np.int8).astype(np.float32) if isinstance(matrix.inputs, Int8Inputs) else e4m3.decoded(bits)
    )


def report_rounded(
    runner: Runner, label: str, memory: dict[str, Bytes], pairs: Matrix, right: Floats
) -> None:
    """Compare what was rounded, and the scales of its rows, with what it should round, which is off by a few
    thousandths itself."""
    if isinstance(pairs.inputs, E4m3Inputs):
        scaled = np.clip(right * np.float32(pairs.inputs.scale), -448, 448)
        allowed = np.maximum(np.abs(scaled) * np.float32(2**-4 + 0.01), np.float32(2.0**-9)) + np.float32(
            0.06
        )
    else:
        assert pairs.scales is not None
        steps = int8.scales(right)
        found = memory[pairs.scales.name][: 4 * pairs.rows].view(np.float32)[:, None]
        runner.report(f"{label}, scales of rows", found, steps, np.float32(1e-2) * steps)
        scaled = right / steps
        allowed = np.float32(0.52) + np.float32(1e-2) * (np.abs(scaled) + np.float32(16))
    runner.report(label, numbers(memory, pairs), scaled, allowed)


def of_halves(right: Floats) -> Floats:
    """How far results in fp16 may be off: the matrix unit adds up with some 14 bits."""
    return np.float32(4e-3) * (np.abs(right) + np.float32(np.sqrt(np.square(right).mean())))


# --- kernels ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Case:
    """A product and how it is computed. k: numbers. form: of inputs and of what is rounded. output:
    "elements", "rounded" or "norm" (both). elements: the inputs are fp16."""

    form: EightBits
    choice: Choice
    m: int
    n: int
    k: int
    output: str = "elements"
    activation: Activation = Activation.NONE
    elements: bool = False

    def __str__(self) -> str:
        inputs = f"{self.form.value}, " + "fp16 inputs, " * self.elements
        kind = "" if self.activation is Activation.NONE else f" {self.activation.value}"
        return f"{inputs}{self.choice}, {self.m} x {self.n} x {self.k}{kind} -> {self.output}"


def by_hopper(*tile: Any, **more: Any) -> Choice:
    return Choice(None, hopper=HopperTile(*tile, **more))


def cases(target: Target, form: EightBits) -> Iterator[Case]:
    product = Product(4096, 1024, 512, Activation.NONE, form=form)
    for index, choice in enumerate(candidates(product, target, PRECISION)):
        if choice.splits == 1:
            output = ("elements", "rounded")[index % 2]
            yield Case(form, choice, 200, 208, 336, output, Activation.SWISH)
    tile = Tile(128, 128, 32, 2, 4, 4, 1.0)
    yield Case(form, Choice(tile), 1024, 512, 512, "norm")
    yield Case(form, Choice(tile, 2), 1024, 512, 512, "norm")
    yield Case(form, Choice(tile, 2), 1024, 512, 512, "rounded", Activation.MISH)
    if target.name != "sm_90":
        return
    for hopper_tile in (by_hopper(256, 4), by_hopper(256, 4, cluster_m=2), by_hopper(128, 6, cluster_m=2)):
        yield Case(form, hopper_tile, 1031, 1536, 512)
        yield Case(form, hopper_tile, 2048, 1024, 1024, "rounded", Activation.MISH)
        yield Case(form, hopper_tile, 17000, 416, 528, "rounded", Activation.RELU_SQUARED)
        yield Case(form, hopper_tile, 1031, 512, 1536, "norm")
    yield Case(form, by_hopper(256, 4, 1, 4, normalise=True), 4096, 1024, 1536, "norm", elements=True)
    if form is EightBits.INT8:
        return
    for normalising, n in (
        (by_hopper(256, 4, 1, 4, normalise=True), 1024),
        (by_hopper(256, 4, 1, 3, normalise=True), 768),
        (by_hopper(256, 4, 1, 2, normalise=True), 512),
        (by_hopper(128, 5, 1, 8, normalise=True), 1024),
        (by_hopper(128, 5, 1, 4, normalise=True), 512),
        (by_hopper(256, 4, 1, 2, normalise=True, row_blocks=4), 1024),
        (by_hopper(256, 4, 1, 1, normalise=True, row_blocks=3), 768),
    ):
        yield Case(form, normalising, 20000, n, 1024, "norm")


def rounding(form: EightBits, scale: float) -> RoundedInputs:
    return Int8Inputs() if form is EightBits.INT8 else E4m3Inputs(scale)


@dataclass(frozen=True, slots=True)
class Sums:
    """Inputs and weights in a format, and what their sums are multiplied with, by row and by column."""

    form: EightBits
    a: Floats
    w: Floats
    rows: Floats
    columns: Floats

    @classmethod
    def random(cls, form: EightBits, rng: np.random.Generator, m: int, n: int, k: int, first: int) -> Sums:
        """The first columns have a scale of their own, as queries do."""

        def numbers(*shape: int) -> Floats:
            values = rng.standard_normal(shape, np.float32) * np.float32(DEVIATIONS[form])
            exact = np.rint(values).clip(-127, 127) if form is EightBits.INT8 else e4m3.nearest(values)
            return exact.astype(np.float32)

        columns = np.full(n, DEVIATIONS[form] ** -2 * k**-0.5, np.float32)
        rows = np.ones(m, np.float32)
        if form is EightBits.INT8:
            rows, columns = 0.5 + rng.random(m, np.float32), columns * (0.5 + rng.random(n, np.float32))
        columns[:first] /= 2
        return cls(form, numbers(m, k), numbers(n, k), rows, columns)

    @property
    def products(self) -> Floats:
        result: Floats = (self.a @ self.w.T) * self.rows[:, None] * self.columns
        return result

    def layer(self, biases: Floats, activation: Activation, scale: float, first: int) -> Linear:
        scales: E4m3Scales | Int8Scales = Int8Scales(self.columns)
        if self.form is EightBits.E4M3:
            scales = E4m3Scales(scale, float(self.columns[-1]), float(self.columns[0]), first)
        pairs = codes_of(self.form, self.w).view(np.uint16)
        return Linear("product", len(self.w), pairs, biases, activation, eight=scales)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        name = f"a.{self.form.value}"
        scales = {f"{name}.scales": self.rows} if self.form is EightBits.INT8 else {}
        return {name: codes_of(self.form, self.a)} | scales


def check_product(runner: Runner, case: Case) -> None:
    m, n, k = case.m, case.n, case.k
    rng = np.random.default_rng(m + n + k)
    biases = rng.standard_normal(n).astype(np.float32)
    skip = rng.standard_normal((m, n), np.float32).astype(np.float16)
    norm = LayerNorm(1 + biases / np.float32(4), biases / np.float32(2), 1e-3)
    b = ProgramBuilder(m, runner.target, PRECISION, lambda _: case.choice)
    if case.elements:
        a = rng.standard_normal((m, k), np.float32).astype(np.float16)
        w = (rng.standard_normal((n, k), np.float32) * np.float32(k**-0.5)).astype(np.float16)
        layer = Linear("product", n, w, biases, case.activation)
        source, arrays = b.matrix("a", m, k), {"a": a}
        products = a.astype(np.float32) @ w.astype(np.float32).T
    else:
        first = n // 48 * 16
        sums = Sums.random(case.form, rng, m, n, k, first)
        layer = sums.layer(biases, case.activation, 4.0, first)
        source, arrays, products = b.rounded("a", m, k, rounding(case.form, 4.0)), sums.arrays, sums.products
    normed = case.output == "norm"
    out = linear(
        b,
        layer,
        source,
        "out",
        residual=b.matrix("skip", m, n) if normed else None,
        after=After(norm) if normed else None,
        rounded=None if case.output == "elements" else rounding(case.form, 16.0),
        keep=case.output != "rounded",
    )
    memory = runner.run(b.program, arrays | {"skip": skip})
    right = activate(case.activation, products + biases)
    if normed:
        right = right + skip.astype(np.float32)
        right = right - right.mean(1, keepdims=True)
        right = right / np.sqrt(np.square(right).mean(1, keepdims=True) + norm.epsilon)
        right = right * norm.gammas + norm.betas
    if case.output != "rounded":
        runner.report(str(case), elements(memory, out), right, of_halves(right))
    pairs = out.rounded if normed else out if case.output == "rounded" else None
    if pairs is not None:
        report_rounded(runner, f"{case}, rounded", memory, pairs, right)


def check_attention(
    runner: Runner,
    form: EightBits,
    positions: int,
    heads: int,
    depth: int,
    k: int,
    tile: AttentionTile | None,
) -> None:
    """q, k and v and attention: by two launches, or by one with a tile."""
    rng = np.random.default_rng(positions + heads + k)
    rows, width = 64 * positions, heads * depth
    given = Sums.random(form, rng, rows, 3 * width, k, 0)
    given.columns[:width] *= np.float32(depth**-0.5)
    biases = rng.standard_normal(3 * width).astype(np.float32)
    biases[width : 2 * width] = 0
    logits = (rng.standard_normal((positions * heads, 4096), np.float32) * 2).astype(np.float16)
    layer = given.layer(biases, Activation.NONE, 2.0, width)
    choose = model_chooser(runner.target, PRECISION, 132)
    b = ProgramBuilder(positions, runner.target, PRECISION, choose)
    source, bias = b.rounded("a", rows, k, rounding(form, 2.0)), b.matrix("logits", positions * heads, 4096)
    wanted = rounding(form, 32.0)
    if tile is not None:
        out = projected_attention(b, layer, source, heads, bias, "attention", tile, wanted)
    else:
        qkv = linear(b, layer, source, "qkv")
        out = attention(b, qkv, heads, depth, bias, "attention", wanted)
    memory = runner.run(b.program, given.arrays | {"logits": logits})
    products = given.products + biases
    q, keys, v = products.reshape(positions, 64, 3, heads, depth).transpose(2, 0, 3, 1, 4)
    scores = q @ keys.transpose(0, 1, 3, 2) + logits.reshape(positions, heads, 64, 64).astype(np.float32)
    mixed = (softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(rows, width)
    label = f"{tile or 'two launches'}: {positions} positions, {heads} heads of {depth}, k {k}"
    report_rounded(runner, f"attention, {form.value}, {label}", memory, out, mixed)


def guarded(runner: Runner, label: str, check: Callable[[], None]) -> None:
    """A check that fails altogether counts as wrong, and the others go on."""
    try:
        check()
    except NotRun:
        return
    except Exception as error:
        runner.wrong += 1
        where = traceback.extract_tb(error.__traceback__)[-1]
        print(f"WRONG  {label}: {type(error).__name__}: {str(error)[:300]} ({where.name}:{where.lineno})")


def check_kernels(runner: Runner, forms: Sequence[EightBits]) -> None:
    """All of them; compiled first, on all cores."""
    runner.wanted = {}
    _check_kernels(runner, forms)
    wanted, runner.wanted = runner.wanted, None
    start = time.perf_counter()
    guarded(runner, "compiling", lambda: _compile(runner, list(wanted)))
    print(f"       {len(wanted)} kernels compiled in {time.perf_counter() - start:.0f} s", flush=True)
    _check_kernels(runner, forms)


def _compile(runner: Runner, wanted: list[tuple[KernelKey, int]]) -> None:
    runner.compiler.load(wanted)


def _check_kernels(runner: Runner, forms: Sequence[EightBits]) -> None:
    for form in forms:
        _check_format(runner, form)


def _check_format(runner: Runner, form: EightBits) -> None:
    for case in cases(runner.target, form):
        guarded(runner, str(case), partial(check_product, runner, case))
    tiles: list[tuple[Any, ...]] = [(5, 4, 32, 256, None), (3, 2, 64, 512, None)]
    if runner.target.name == "sm_90":
        tiles += [(7, 5, 32, 400, AttentionTile()), (300, 32, 32, 1024, AttentionTile())]
        tiles += [(64, 24, 32, 768, AttentionTile(cluster_m=1))]
    for values in tiles:
        guarded(runner, f"attention {form.value} {values}", partial(check_attention, runner, form, *values))
