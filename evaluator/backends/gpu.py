"""The `gpu` backend: a network on an AMD or NVIDIA GPU, from the kernels in evaluator/kernels."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from evaluator.backends.agreement import BF16, FP16, FP32, INT4, INT8
from evaluator.backends.base import Backend, BackendError, NotFiniteError
from evaluator.backends.probe import probe_batch
from evaluator.backends.reference import ReferenceBackend
from evaluator.gpu.blas.discovery import open_libraries
from evaluator.gpu.blas.library import Library
from evaluator.gpu.blas.product import Product
from evaluator.gpu.driver.compiler import Compiler, KernelKey
from evaluator.gpu.driver.device import Device, DeviceError, DeviceInfo, NotFiniteOutput, OutOfDeviceMemory
from evaluator.gpu.driver.discovery import (
    Discovery,
    discover,
    open_device,
    select,
    select_all,
)
from evaluator.gpu.driver.target import Precision
from evaluator.gpu.plan.hopper import filling
from evaluator.gpu.plan.plan import Plan
from evaluator.gpu.plan.program import PlanError
from evaluator.gpu.plan.quantised import WeightFormat, rounded_network
from evaluator.gpu.plan.tiles import model_chooser
from evaluator.gpu.run.executor import Executor
from evaluator.gpu.run.in_flight import Layout
from evaluator.gpu.tuning.tune import (
    PRODUCT_KERNELS,
    Chooses,
    Collector,
    LibraryGivenUp,
    Measured,
    Needs,
    Tuner,
)
from evaluator.network.spec import AttentionBody, NetworkSpec
from evaluator.parts import cut, joined
from protocol.batch import EvaluationBatch, PositionBatch

log = logging.getLogger(__name__)

NEEDS_NETWORK = True

BUCKETS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Batch sizes that are captured; a batch is padded to the next."""

INTEGRATED_MAX_BATCH = 256
"""Where the GPU shares the CPU's memory: such a GPU is full long before 1024 positions, which would cost it
seconds at start and a buffer of that size in everybody's memory."""

_SELF_CHECK_LIMITS = {
    Precision.FP32: (1e-3, 1e-3),
    Precision.FP16: (0.03, 0.01),
    Precision.BF16: (0.15, 0.06),
}
"""Of the self-check: root mean square error of the logits over their spread (a wrong kernel is off by 1), and
the largest error of a win, draw or loss probability."""

_TOLERANCES = {Precision.FP32: FP32, Precision.FP16: FP16, Precision.BF16: BF16}
_TOLERANCES_OF_WEIGHTS = {WeightFormat.INT8: INT8, WeightFormat.INT4: INT4}

_CHECKED_POSITIONS = 2


@cache
def _found() -> Discovery:
    return discover()


def unavailable() -> str | None:
    found = _found()
    if found.devices:
        return None
    return "no GPU can be used; " + "; ".join(f"{vendor}: {why}" for vendor, why in found.problems.items())


def named_devices(device: str) -> list[str]:
    """One name for each device of "0+1", "all" or any other value of the option. Raises BackendError."""
    if not _found().devices:
        return [device]  # opening it says why
    try:
        found = select_all(_found().devices, device)
    except DeviceError as error:
        raise BackendError(str(error)) from error
    return [f"{each.vendor}:{each.index}" for each in found]


def open(
    network: NetworkSpec,
    *,
    threads: int | None = None,
    device: str | int = "",
    precision: str = "fp16",
    weights: str = "",
    deterministic: bool = False,
    max_batch: int | None = None,
    buckets: str = "",
) -> GpuBackend:
    """device: see `driver.discovery.select`. precision: fp16, bf16 or fp32. weights: int8 or int4 to
    round the encoders' weights to so few bits; empty for those of the precision. deterministic: the same
    position gives the same bits at every batch size. max_batch: less saves memory; 1024 or a little more if
    not given, 256 on a GPU that shares the CPU's memory.
    buckets: the batch sizes that are run, as in "1+8+64", in place of the usual ones up to max_batch."""
    stored, form = _formats(precision, weights)
    if max_batch is not None and max_batch < 1:
        raise BackendError(f"max_batch must be at least 1, not {max_batch}")
    try:
        taken = open_device(select(_found().devices, str(device)))
    except DeviceError as error:
        raise BackendError(str(error)) from error
    libraries: tuple[Library, ...] = ()
    try:
        sizes = _sizes(str(buckets)) or usual_buckets(taken.info, max_batch)
        if not deterministic:
            libraries, problems = open_libraries(taken.info, stored)
            for name, why in problems.items():
                log.info("%s: without %s: %s", taken.info.name, name, why)
        return GpuBackend(
            network,
            taken,
            precision=stored,
            weights=form,
            deterministic=deterministic,
            buckets=sizes,
            libraries=libraries,
        )
    except BaseException as error:
        for library in libraries:
            library.close()
        taken.close()
        if isinstance(error, DeviceError):
            raise BackendError(f"{taken.info.name}: {error}") from error
        raise


def tune(
    network: NetworkSpec,
    *,
    device: str = "",
    precision: str = "fp16",
    weights: str = "",
    rebuild: bool = False,
    progress: Callable[[str], None] = log.info,
) -> list[tuple[Product, list[Measured]]]:
    """Measure every matrix product of a network at every batch size, and write the cache.

    rebuild: also what is in the cache already. Raises BackendError or DeviceError.
    """
    stored, form = _formats(precision, weights)
    reason = unavailable()
    if reason is not None:
        raise BackendError(f"{reason}. There is nothing to tune: the CPU's matrix products are onnxruntime's")
    taken = open_device(select(_found().devices, device))
    libraries: Sequence[Library] = ()
    try:
        info = taken.info
        libraries, problems = open_libraries(info, stored)
        for library in libraries:
            progress(f"with {library.version}")
        for name, why in problems.items():
            progress(f"without {name}: {why}")
        tuner = Tuner(taken, Compiler(taken), stored, libraries, progress=progress)
        plan = Plan(_rounded(network, form), info.target, stored, tuner.choose, form)
        needs = _needs(plan, info, usual_buckets(info))
        if rebuild:
            for product in needs.products:
                tuner.known.pop(product, None)
        tuner.measure_all(needs)
        tuner.save()
        return [(product, tuner.known[product]) for product in needs.products]
    except PlanError as error:
        raise BackendError(str(error)) from error
    finally:
        for library in libraries:
            library.close()
        taken.close()


class GpuBackend(Backend):
    """Two batches in flight. Device and libraries belong to the backend once it is open, and are closed with
    it."""

    name = "gpu"
    max_in_flight = 2
    finite = True

    def __init__(
        self,
        network: NetworkSpec,
        device: Device,
        *,
        precision: Precision = Precision.FP16,
        weights: WeightFormat | None = None,
        deterministic: bool = False,
        buckets: tuple[int, ...] = BUCKETS,
        libraries: Sequence[Library] = (),
        compiler: Compiler | None = None,
        tuner: Chooses | None = None,
        check: bool = True,
    ) -> None:
        """check: compare every bucket with the reference. Raises BackendError."""
        info = device.info
        if not info.target.known:
            log.warning(
                "%s (%s) is not a known target; it gets the generic kernels", info.name, info.target.name
            )
        storage = precision.value + (f" with {weights.value} weights" if weights else "")
        self.device = f"{info.name} ({info.target.name}, {storage}, {info.driver})"
        self.precision = precision
        self.tolerance = _TOLERANCES_OF_WEIGHTS[weights] if weights else _TOLERANCES[precision]
        self.network = network = _rounded(network, weights)
        self._device = device
        expected = _Expected(network) if check else None
        compiler = compiler or Compiler(device)
        self._libraries = libraries
        if tuner is None and not deterministic:
            tuner = Tuner(device, compiler, precision, self._libraries, progress=log.info)
        choose = (
            model_chooser(info.target, precision, info.multiprocessors, deterministic=deterministic)
            if tuner is None
            else tuner.choose
        )
        blocks = info.multiprocessors if info.cooperative and not deterministic else 0
        fused = not deterministic
        plan = Plan(network, info.target, precision, choose, weights, blocks, fused)
        self._executor: Executor | None = None
        while True:
            try:
                if tuner is not None:
                    tuner.expect(partial(_needs, plan, info, buckets))
                self.executor = Executor(
                    device,
                    compiler,
                    plan,
                    buckets,
                    libraries=self._libraries,
                    planned=expected.start if expected is not None else lambda: None,
                )
                break
            except OutOfDeviceMemory as error:
                if len(buckets) == 1:
                    free = device.free_memory() >> 20
                    raise BackendError(
                        f"{info.name} has not enough free memory ({free} MB) for this network even at a "
                        f"batch of {buckets[0]}; close other programs or use a smaller network"
                    ) from error
                buckets = buckets[:-1]
                log.warning("not enough memory on %s: trying batches up to %d", info.name, buckets[-1])
            except LibraryGivenUp:
                plan = Plan(network, info.target, precision, choose, weights, blocks, fused)
            except (DeviceError, PlanError) as error:
                raise BackendError(f"{info.name}: {error}") from error
        if tuner is not None:
            tuner.save()
        if weights is not None and not any(name.endswith(".codes") for name in plan.weights):
            log.warning(
                "weights=%s brings nothing on %s: every product is faster from fp16 weights. Leave the "
                "option away, it only costs accuracy here",
                weights.value,
                info.name,
            )
        plan.weights.clear()  # they are on the device now
        self._executor = self.executor
        self.buckets = buckets
        self.max_batch = buckets[-1]
        if expected is not None:
            try:
                self.check(expected)
            except BaseException:
                self.executor.close()
                raise

    def evaluate(self, batch: PositionBatch) -> EvaluationBatch:
        return self.evaluate_parts([batch])

    def evaluate_parts(self, parts: Sequence[PositionBatch]) -> EvaluationBatch:
        if self._executor is None:
            raise BackendError("the gpu backend is closed")
        if sum(len(part.moves) for part in parts) > Layout(self.max_batch).max_moves:
            # Only somebody who asks for whole policy vectors gets here.
            return self._in_halves(joined(parts))
        try:
            return self._executor.evaluate(parts)
        except NotFiniteOutput as error:
            raise NotFiniteError(f"{self.device}: {error}") from error
        except (DeviceError, ValueError) as error:
            raise BackendError(f"{self.device}: {error}") from error

    def _in_halves(self, batch: PositionBatch) -> EvaluationBatch:
        if len(batch) == 1:
            raise BackendError(f"one position with {len(batch.moves)} moves is more than fits")
        middle = len(batch) // 2
        halves = self.evaluate(cut(batch, 0, middle)), self.evaluate(cut(batch, middle, len(batch)))
        return EvaluationBatch(
            np.concatenate([half.logits for half in halves]),
            np.concatenate([half.wdl for half in halves]),
            np.concatenate([half.moves_left for half in halves]),
        )

    def check(self, reference: _Expected) -> None:
        """Compare what every bucket computes with the reference, which has the same rounded weights. Raises
        BackendError."""
        self.choose_programs(reference)
        for size in self.buckets:
            problem = self._problem(size, reference)
            if problem:
                raise BackendError(
                    f"{self.device} fails its self-check at batch {size}: {problem}; please report it with "
                    f"the output of `python -m evaluator devices`"
                )

    def choose_programs(self, reference: _Expected | None = None) -> None:
        """Run every bucket that has several programs by the fastest that computes the right thing. Measuring
        takes milliseconds, so that it is done at every start."""
        if self.executor.alternatives:
            reference = reference or _Expected(self.network)
            for size in self.executor.alternatives:
                self._choose_program(size, reference)

    def _choose_program(self, size: int, reference: _Expected) -> None:
        usual, *others = self.executor.alternatives[size]
        best, best_ms = usual, self.executor.time(size)
        for program in others:
            try:
                self.executor.select(size, program)
                problem = self._problem(size, reference)
                if problem:
                    log.warning(
                        "%s: one launch for all encoders is wrong at batch %d: %s", self.device, size, problem
                    )
                    continue
                milliseconds = self.executor.time(size)
            except (BackendError, DeviceError) as error:
                log.warning("%s: one launch for all encoders fails at batch %d: %s", self.device, size, error)
                continue
            log.info(
                "batch %d: %.3f ms by many launches, %.3f ms with all encoders in one",
                size,
                best_ms,
                milliseconds,
            )
            if milliseconds < best_ms:
                best, best_ms = program, milliseconds
        self.executor.select(size, best)

    def _problem(self, size: int, reference: _Expected) -> str:
        """What is wrong with a bucket's results; nothing if they agree with the reference."""
        probe, expected = reference.probe, reference.wait()
        logits_limit, wdl_limit = _SELF_CHECK_LIMITS[self.precision]
        spread = float(expected.logits.std()) or 1.0
        try:
            result = self.evaluate(_repeated(probe, size))
        except NotFiniteError:
            return "infinite or not a number"
        copies = -(-size // _CHECKED_POSITIONS)
        wanted = np.tile(expected.logits, copies)[: len(result.logits)]
        error = float(np.sqrt(np.square(result.logits - wanted).mean())) / spread
        wdl_error = float(np.abs(result.wdl - np.tile(expected.wdl, (copies, 1))[:size]).max())
        log.debug("%s, batch %d: logits off by %.2g, wdl by %.2g", self.device, size, error, wdl_error)
        if error <= logits_limit and wdl_error <= wdl_limit:
            return ""
        return f"logits off by {error:.1%} of their spread, win/draw/loss by {wdl_error:.2g}"

    def memory(self) -> tuple[int, int] | None:
        if self._executor is None:
            return None
        try:
            self._device.activate()
            return self._device.info.memory - self._device.free_memory(), self._device.info.memory
        except DeviceError as error:
            log.debug("%s: %s", self.device, error)
            return None

    def close(self) -> None:
        if self._executor is not None:
            self._executor.close()
            self._executor = None
            for library in self._libraries:
                library.close()
            self._device.close()


class _Expected:
    """What the reference says about a few made-up positions, computed beside the opening of the backend."""

    def __init__(self, network: NetworkSpec) -> None:
        self.probe = probe_batch(_CHECKED_POSITIONS, seed=7)
        self._network = network
        self._result: Future[EvaluationBatch] | None = None

    def start(self) -> None:
        """Begin to compute, once."""
        if self._result is None:
            thread = ThreadPoolExecutor(1, "reference")
            self._result = thread.submit(ReferenceBackend(self._network).evaluate, self.probe)
            thread.shutdown(wait=False)

    def wait(self) -> EvaluationBatch:
        self.start()
        assert self._result is not None
        return self._result.result()


def _needs(plan: Plan, info: DeviceInfo, buckets: tuple[int, ...]) -> Needs:
    """The matrix products of all batch sizes, and the kernels of everything but them."""
    collector = Collector(info.target, plan.precision, info.multiprocessors)
    plan = replace(plan, choose=collector, weights={})  # shares the packed layers
    kernels: dict[tuple[KernelKey, int], None] = {}
    for size in buckets:
        for program in (plan.program(size), plan.persistent_program(size)):
            if program is not None:
                kernels |= {key: None for key in program.kernels() if key[0].file not in PRODUCT_KERNELS}
    return Needs(tuple(collector.products), tuple(kernels))


def usual_buckets(info: DeviceInfo, max_batch: int | None = None) -> tuple[int, ...]:
    """The batch sizes that are captured where nobody says otherwise: BUCKETS, or a little more where that
    makes better use of the device."""
    sizes = [filling(size, info.target, info.multiprocessors) for size in BUCKETS]
    most = max_batch or (INTEGRATED_MAX_BATCH if info.integrated else sizes[-1])
    return (*(size for size in sizes if size < most), most)


def _formats(precision: str, weights: str) -> tuple[Precision, WeightFormat | None]:
    try:
        stored = Precision(precision)
    except ValueError as error:
        known = ", ".join(each.value for each in Precision)
        raise BackendError(f"precision {precision!r} is not one of {known}") from error
    if not weights:
        return stored, None
    try:
        form = WeightFormat(weights)
    except ValueError as error:
        known = ", ".join(each.value for each in WeightFormat)
        raise BackendError(
            f"weights {weights!r} is not one of {known}; without it they are stored as precision says"
        ) from error
    if stored is not Precision.FP16:
        raise BackendError(f"weights={weights} goes with precision=fp16, not with {precision}")
    return stored, form


def _rounded(network: NetworkSpec, form: WeightFormat | None) -> NetworkSpec:
    if form is None:
        return network
    if not (isinstance(network.body, AttentionBody) and network.body.encoders):
        raise BackendError(f"weights={form.value} is for attention networks; this one has no encoders")
    if form is WeightFormat.INT4:
        log.warning(
            "weights=int4 is an experiment: it changes what the network says. `python -m evaluator verify "
            "--backend gpu:weights=int4` prints by how much"
        )
    return rounded_network(network, form)


def _sizes(text: str) -> tuple[int, ...]:
    try:
        sizes = sorted({int(size) for size in text.split("+") if size})
    except ValueError:
        sizes = [0]
    if sizes and sizes[0] < 1:
        raise BackendError(f"buckets {text!r}: write sizes from 1, as in 1+8+64")
    return tuple(sizes)


def _repeated(batch: PositionBatch, count: int) -> PositionBatch:
    """A batch whose positions all have equally many moves, over and over up to `count`."""
    copies: Any = -(-count // len(batch))
    each = len(batch.moves) // len(batch)
    return PositionBatch(
        np.tile(batch.positions, copies)[:count],
        np.arange(count + 1, dtype=np.uint32) * np.uint32(each),
        np.tile(batch.moves, copies)[: count * each],
    )
