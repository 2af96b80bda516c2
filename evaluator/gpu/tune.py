"""Measure the ways to compute each matrix product, and keep the fastest correct one in a cache.

A candidate is timed with everything it brings along (the passes that add up splits, apply an activation or
normalise), many times in one graph, with weights that are not in the chip's cache: as it runs in a network.
Its result is compared with that of the plainest candidate, and what disagrees is dropped. The cache is keyed
by device, driver, precision, the kernels' sources and the library's version.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import logging
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import platformdirs

from evaluator.gpu import weights as pack
from evaluator.gpu.builder import After, Builder, Linear
from evaluator.gpu.compiler import Compiler, source
from evaluator.gpu.device import Device, DeviceError
from evaluator.gpu.gemm import Choice, Product, Tile, candidates, estimate
from evaluator.gpu.library import Library, library_product
from evaluator.gpu.program import Branch, Buffer, Launch, LibraryStep, Matrix, Program, Space
from evaluator.gpu.target import Precision
from evaluator.network.spec import Activation, LayerNorm

log = logging.getLogger(__name__)

_OWN_CANDIDATES, _OWN_CANDIDATES_OF_FEW = 4, 16
"""Of our kernel, by the model's estimate; more where m is small, which the model knows little about."""

_FEW_ROWS = 512

_WEIGHTS_BYTES = 96 << 20
"""Copies of the weights that are read in turn: more than the L2 of any GPU."""

_TOLERANCE = 0.02
"""Root mean square of the difference of two candidates over that of the result; half precision gives 1e-3."""

_MEASURE_MS = 1.0


@dataclass(frozen=True, slots=True)
class Measured:
    """A choice and its microseconds."""

    choice: Choice
    microseconds: float


class Chooses(Protocol):
    """What a backend asks of a Tuner."""

    def choose(self, product: Product) -> Choice: ...

    def save(self) -> None: ...


class Tuner:
    """The choices for one device and precision. `choose` is a Chooser that measures what it does not know."""

    def __init__(
        self,
        device: Device,
        compiler: Compiler,
        precision: Precision,
        libraries: Sequence[Library],
        *,
        use_cache: bool = True,
        progress: Callable[[str], None] = log.debug,
    ) -> None:
        self._device = device
        self._compiler = compiler
        self._precision = precision
        self._libraries = libraries
        self._progress = progress
        self._path = self._cache_path() if use_cache else None
        self.known: dict[Product, list[Measured]] = {} if self._path is None else _read(self._path)
        self.measured = 0
        """Products that were not in the cache."""

    def choose(self, product: Product) -> Choice:
        """The fastest correct way, measured now if it is not known."""
        if product not in self.known:
            self.known[product] = self.measure(product)
            self.measured += 1
        return self.known[product][0].choice

    def save(self) -> None:
        """Write what was measured to the cache."""
        if self._path is not None and self.measured:
            _write(self._path, self.known)

    def measure(self, product: Product) -> list[Measured]:
        """Every candidate that computes the right thing, the fastest first."""
        info = self._device.info
        own = candidates(product, info.target, self._precision)
        own.sort(key=lambda choice: estimate(product, choice, info.multiprocessors))
        plain = next(choice for choice in own if choice.splits == 1)
        count = _OWN_CANDIDATES_OF_FEW if product.m <= _FEW_ROWS else _OWN_CANDIDATES
        possible = [plain, *(choice for choice in own[:count] if choice != plain)]
        possible += self._of_libraries(product)
        start = time.perf_counter()
        with _Bench(self._device, self._compiler, self._precision, self._libraries, product) as bench:
            expected = bench.result(plain)
            scale = float(np.sqrt(np.square(expected).mean())) or 1.0
            measured = []
            for choice in possible:
                try:
                    error = float(np.sqrt(np.square(bench.result(choice) - expected).mean())) / scale
                    if not error <= _TOLERANCE:
                        log.warning("%s: %s is wrong by %.1g and is not used", product, choice, error)
                        continue
                    measured.append(Measured(choice, bench.microseconds(choice)))
                except DeviceError as error_of_library:
                    if choice.tile is not None:
                        raise
                    log.info("%s: %s: %s", product, choice, error_of_library)
        measured.sort(key=lambda each: each.microseconds)
        best = ", ".join(f"{each.choice} {each.microseconds:.1f} us" for each in measured[:4])
        self._progress(
            f"{product.m} x {product.n} x {product.k}: {best} "
            f"({len(measured)} candidates in {time.perf_counter() - start:.2f} s)"
        )
        return measured

    def _of_libraries(self, product: Product) -> list[Choice]:
        if product.convolution or product.bias_by_square or product.segment:
            return []
        choices: dict[Choice, None] = {}
        for library in self._libraries:
            shape = library_product(product, library.name, fused=True, lda=product.k, ldo=product.n)
            choices |= {Choice(None, 1, each, library.name): None for each in library.algorithms(shape)}
        return list(choices)

    def _cache_path(self) -> Path:
        info = self._device.info
        parts = [info.name, info.driver, info.target.name, self._precision.value]
        parts += [library.version for library in self._libraries]
        parts += [source("gemm"), source("rows"), Path(__file__).read_text("utf-8")]
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
        return Path(platformdirs.user_cache_dir("wavefront", False)) / "gemm" / f"{digest}.json"


class _Bench:
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
        self._handles: list[Any] = []
        self._buffers: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self._rng = np.random.default_rng(1)

    def __enter__(self) -> _Bench:
        try:
            return self._prepare()
        except BaseException:
            self.__exit__()
            raise

    def _prepare(self) -> _Bench:
        product, precision = self._product, self._precision
        inputs = product.k // 9 if product.convolution else product.k
        self._fill("a", (product.m, inputs), 1.0)
        size = product.n * product.k * precision.bytes
        self._copies = max(1, min(16, _WEIGHTS_BYTES // size))
        one = self._random((product.n, product.k), product.k**-0.5)
        self._weights = self._allocate(self._copies * pack.round_up(size, 256))
        for copy in range(self._copies):
            self._device.write(self._weights + copy * pack.round_up(size, 256), one)
        self._weights_stride = pack.round_up(size, 256)
        if product.residual:
            self._fill("residual", (product.m, product.n), 1.0)
        rows = 64 if product.bias_by_square else 1
        biases = self._rng.standard_normal((rows, product.n)).astype(np.float32)
        for name, values in (
            ("product.biases", biases),
            ("product.library_biases", pack.stored(biases, precision)),
            ("product.gammas", biases),
            ("product.betas", biases),
        ):
            self._buffers[name] = self._allocate(values.nbytes)
            self._device.write(self._buffers[name], np.ascontiguousarray(values))
        space = max((library.workspace for library in self._libraries.values()), default=0)
        self._workspace = self._allocate(space)
        self._stream = self._kept(self._device.create_stream())
        self._events = [self._kept(self._device.create_event(timing=True)) for _ in range(2)]
        return self

    def _kept(self, handle: Any) -> Any:
        self._handles.append(handle)
        return handle

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            self._device.release(handle)
        for address in self._allocated:
            self._device.free(address)

    def result(self, choice: Choice) -> Any:
        """What a choice computes, float32 [rows, n]; the first rows of a large product."""
        program = self._program(choice)
        self._run(program, 1)
        product = self._product
        rows = min(product.m, 256)
        raw = np.empty(rows * product.n * self._precision.bytes, np.uint8)
        self._device.read(self._buffers["out"], raw)
        match self._precision:
            case Precision.FP16:
                return raw.view(np.float16).astype(np.float32)
            case Precision.BF16:
                return (raw.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
            case Precision.FP32:
                return raw.view(np.float32)

    def microseconds(self, choice: Choice) -> float:
        """Of one run among many, the best of three measurements."""
        program = self._program(choice)
        once = self._run(program, 2) / 2
        repeats = int(min(64, max(4, _MEASURE_MS * 1000 / max(once, 1.0))))
        return min(self._run(program, repeats) / repeats for _ in range(2))

    def _run(self, program: Program, repeats: int) -> float:
        """Microseconds of `repeats` runs in one graph, after one that warms up."""
        device, stream = self._device, self._stream
        launches = [(step.kernel, step.shared_bytes) for step in program.steps if isinstance(step, Launch)]
        kernels = self._compiler.load(launches)
        device.begin_capture(stream)
        first = True
        for repeat in range(repeats):
            weights = self._weights + repeat % self._copies * self._weights_stride
            for step in program.steps:
                if isinstance(step, LibraryStep):
                    self._libraries[step.library].multiply(
                        step.product,
                        step.algorithm,
                        a=self._address(step.a, weights),
                        b=self._address(step.weights, weights),
                        bias=self._address(step.bias, weights),
                        residual=self._address(step.residual, weights),
                        out=self._address(step.out, weights),
                        workspace=self._workspace,
                        stream=int(stream),
                    )
                elif not isinstance(step, Branch):
                    arguments = [
                        ctypes.c_float(argument)
                        if isinstance(argument, float)
                        else ctypes.c_int32(argument)
                        if isinstance(argument, int)
                        else ctypes.c_uint64(self._address(argument, weights))
                        for argument in step.arguments
                    ]
                    kernel = kernels[step.kernel, step.shared_bytes]
                    device.launch(
                        kernel,
                        step.grid,
                        step.threads,
                        step.shared_bytes,
                        arguments,
                        stream,
                        overlap=not first,
                    )
                first = False
        graph = device.end_capture(stream)
        start, end = self._events
        for _ in range(2):
            device.record(start, stream)
            device.launch_graph(graph, stream)
            device.record(end, stream)
            device.synchronize(end)
        device.release(graph)
        return device.milliseconds(start, end) * 1000

    def _program(self, choice: Choice) -> Program:
        product = self._product
        known = dict.fromkeys(
            [f"product.{name}" for name in ("weights", "biases", "library_biases", "gammas", "betas")],
            np.zeros(0),
        )
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
        )
        residual = Matrix(Buffer(Space.WORK, "residual"), product.m, product.n, product.n)
        ones = np.ones(0, np.float32)
        builder.linear(
            layer,
            a,
            "out",
            residual=residual if product.residual else None,
            after=After(LayerNorm(ones, ones, 1e-3)) if product.followed else None,
        )
        for name, size in builder.program.work.items():
            if self._sizes.get(name, 0) < size:
                self._buffers[name] = self._allocate(size)
                self._sizes[name] = size
        return builder.program

    def _address(self, buffer: Buffer | float | None, weights: int) -> int:
        if buffer is None:
            return 0
        assert isinstance(buffer, Buffer)
        return weights if buffer.name == "product.weights" else self._buffers[buffer.name]

    def _allocate(self, size: int) -> int:
        address = self._device.allocate(size)
        self._allocated.append(address)
        return address

    def _random(self, shape: tuple[int, int], scale: float) -> Any:
        """Random elements; a block of them over and over, which is enough to keep products honest."""
        block = self._rng.standard_normal(1 << 18, np.float32) * np.float32(scale)
        return np.resize(pack.stored(block, self._precision), shape)

    def _fill(self, name: str, shape: tuple[int, int], scale: float) -> None:
        values = self._random(shape, scale)
        self._buffers[name] = self._allocate(values.nbytes)
        self._device.write(self._buffers[name], values)


class Collector:
    """A Chooser that only notes what it is asked for."""

    def __init__(self, target: Any, precision: Precision, multiprocessors: int) -> None:
        self.products: dict[Product, None] = {}
        self._of = (target, precision, multiprocessors)

    def __call__(self, product: Product) -> Choice:
        self.products[product] = None
        target, precision, multiprocessors = self._of
        possible = candidates(product, target, precision)
        return min(possible, key=lambda choice: estimate(product, choice, multiprocessors))


def _read(path: Path) -> dict[Product, list[Measured]]:
    try:
        entries: Iterable[Any] = json.loads(path.read_text("utf-8"))
        known = {}
        for entry in entries:
            fields = entry["product"] | {"activation": Activation(entry["product"]["activation"])}
            known[Product(**fields)] = [
                Measured(
                    Choice(
                        None if each["tile"] is None else Tile(**each["tile"]),
                        each["splits"],
                        bytes.fromhex(each["algorithm"]),
                        each["library"],
                        each["fused"],
                    ),
                    each["us"],
                )
                for each in entry["choices"]
            ]
        return known
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def _write(path: Path, known: dict[Product, list[Measured]]) -> None:
    entries = [
        {
            "product": asdict(product) | {"activation": product.activation.value},
            "choices": [
                {
                    "tile": None if each.choice.tile is None else asdict(each.choice.tile),
                    "splits": each.choice.splits,
                    "algorithm": each.choice.algorithm.hex(),
                    "library": each.choice.library,
                    "fused": each.choice.fused,
                    "us": round(each.microseconds, 2),
                }
                for each in measured
            ],
        }
        for product, measured in known.items()
    ]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            json.dump(entries, file)
        Path(file.name).replace(path)
    except OSError as error:
        log.warning("the choice of matrix products cannot be cached: %s", error)
