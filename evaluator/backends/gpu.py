"""The `gpu` backend: a network on an AMD or NVIDIA GPU, by evaluator/gpu and the kernels in
evaluator/kernels."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from evaluator.backends.base import Backend, BackendError, NotFiniteError
from evaluator.backends.gpu_lending import lend
from evaluator.backends.gpu_options import (
    Formats,
    batch_sizes,
    formats,
    fp8_network,
    rounded,
    tuning_of,
)
from evaluator.backends.lending import Lent
from evaluator.backends.probe import uneven_batch
from evaluator.backends.reference import ReferenceBackend
from evaluator.gpu.blas.discovery import open_libraries
from evaluator.gpu.blas.library import Library
from evaluator.gpu.blas.product import Product
from evaluator.gpu.driver import crashes
from evaluator.gpu.driver.compiler import Compiler
from evaluator.gpu.driver.crashes import Attempt, Phase
from evaluator.gpu.driver.device import Device, DeviceError, DeviceInfo, NotFiniteOutput
from evaluator.gpu.driver.discovery import fastest, found_devices, open_device, select, select_all, subject_of
from evaluator.gpu.driver.sensors import read_sensors
from evaluator.gpu.driver.target import Precision
from evaluator.gpu.plan.needs import MeasuringChooser, Needs, needs_of
from evaluator.gpu.plan.persistent_form import PersistentForm
from evaluator.gpu.plan.plan import FP8_POSITIONS, Plan
from evaluator.gpu.plan.program import PlanError
from evaluator.gpu.plan.quantised import WeightFormat
from evaluator.gpu.plan.tiles import Measured, model_chooser
from evaluator.gpu.run.buckets import BUCKETS, usual_buckets
from evaluator.gpu.run.executor import Executor
from evaluator.gpu.run.opening import OpeningError, open_executor
from evaluator.gpu.run.self_check import (
    CHECKED_MOVES,
    FP8_LIMITS,
    Check,
    Expected,
    SelfCheck,
    SelfCheckError,
    limits,
)
from evaluator.gpu.tuning.child import Job, measure_in_child
from evaluator.gpu.tuning.quick import QuickChooser
from evaluator.gpu.tuning.tune import NotMeasured, Tuner
from evaluator.gpu.tuning.when import Tuning
from evaluator.network.spec import NetworkSpec
from evaluator.progress import announce, warn
from evaluator.sensors import Sensors
from evaluator.slices import Slice, unshared
from protocol.batch import EvaluationBatch, PositionBatch

log = logging.getLogger(__name__)

NEEDS_NETWORK = True


def unavailable() -> str | None:
    found = found_devices()
    if found.usable:
        return None
    if found.excluded:
        return "; ".join(found.excluded.values())
    return "no GPU can be used; " + "; ".join(f"{vendor}: {why}" for vendor, why in found.problems.items())


def is_small() -> bool:
    """Whether the GPU that is used if none is named may be slower than the CPU."""
    usable = found_devices().usable
    return bool(usable) and fastest(usable).small


def named_devices(device: str) -> list[str]:
    """One name for each device of "0+1", "all" or any other value of the option. Raises BackendError."""
    found = found_devices()
    devices = found.devices
    if not devices:
        return [device]  # opening it says why
    try:
        return [f"{each.vendor}:{each.index}" for each in select_all(devices, device, found.excluded)]
    except DeviceError as error:
        raise BackendError(str(error)) from error


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
    tuning: str = "before",
    libraries: bool = True,
) -> GpuBackend:
    """device: see `driver.discovery.select`. precision: fp16, bf16, fp32, or fp8 for the encoders'
    products in e4m3 and the rest in fp16. weights: int8 or int4 to round the encoders' weights to so few
    bits; empty for those of the precision. deterministic: the same position gives the same bits at every
    batch size.
    max_batch: less saves memory; 1024 or a little more if not given, 256 on a GPU that shares the CPU's
    memory. buckets: the batch sizes that are run, as in "1+8+64", in place of the usual ones up to
    max_batch. tuning: when what is fastest is measured where nobody knows it yet: before the backend opens;
    behind, by the caller of `tuned`; or off. libraries: use the vendor's libraries, too."""
    chosen, when = formats(precision, weights), tuning_of(tuning)
    if chosen.fp8 and deterministic:
        raise BackendError(
            "deterministic=true and precision=fp8 exclude each other: small batches are computed in fp16"
        )
    if max_batch is not None and max_batch < 1:
        raise BackendError(f"max_batch must be at least 1, not {max_batch}")
    try:
        found = found_devices()
        info = select(found.devices, str(device), found.excluded)
        for notice in found.notices:
            warn(f"{notice}; {info.name} is used instead")
    except DeviceError as error:
        raise BackendError(str(error)) from error
    sizes = batch_sizes(str(buckets)) or usual_buckets(info, max_batch)
    return _open_on(
        info, network, chosen, sizes, deterministic=deterministic, tuning=when, with_libraries=libraries
    )


def _open_on(
    info: DeviceInfo,
    network: NetworkSpec,
    chosen: Formats,
    sizes: tuple[int, ...],
    *,
    deterministic: bool,
    tuning: Tuning,
    slices: Slice = unshared,
    with_libraries: bool = True,
    known: Mapping[Product, Sequence[Measured]] | None = None,
) -> GpuBackend:
    """Take a device and open the network on it. Raises BackendError."""
    attempt = Attempt(subject_of(info), Phase.OPENING)
    try:
        taken = open_device(info)
    except DeviceError as error:
        attempt.end()
        raise BackendError(str(error)) from error
    libraries: tuple[Library, ...] = ()
    try:
        if with_libraries and not deterministic:
            libraries, problems = open_libraries(info, chosen.stored)
            for name, why in problems.items():
                log.info("%s: without %s: %s", info.name, name, why)
        backend = GpuBackend(
            network,
            taken,
            precision=chosen.stored,
            weights=chosen.weights,
            fp8=chosen.fp8,
            deterministic=deterministic,
            buckets=sizes,
            libraries=libraries,
            tuning=tuning,
            slices=slices,
            known=known,
            attempt=attempt,
        )
        attempt.enter(Phase.USING)
        return backend
    except BaseException as error:
        attempt.end()
        for library in libraries:
            library.close()
        taken.close()
        if isinstance(error, DeviceError):
            raise BackendError(f"{info.name}: {error}") from error
        raise


def _start(checks: Sequence[Check]) -> None:
    for check in checks:
        check.expected.start()


def _guessed(plan: Plan, quick: QuickChooser) -> Plan:
    """The plan by guesses, with one program for each batch size. Shares what is packed."""
    return replace(plan, choose=quick.choose, measurements=None, blocks=0, weights={})


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
        fp8: bool = False,
        deterministic: bool = False,
        buckets: tuple[int, ...] = BUCKETS,
        libraries: Sequence[Library] = (),
        compiler: Compiler | None = None,
        tuner: MeasuringChooser | None = None,
        check: bool = True,
        form: PersistentForm | None = None,
        tuning: Tuning = Tuning.BEFORE,
        slices: Slice = unshared,
        known: Mapping[Product, Sequence[Measured]] | None = None,
        attempt: Attempt | None = None,
    ) -> None:
        """check: compare every bucket with the reference. form: of the one launch for all encoders;
        None for those that may be the fastest. slices: of the device, for the self-check. known:
        measurements, besides those in the cache. attempt: ends when the backend is closed. Raises
        BackendError."""
        info, target = device.info, device.info.target
        if not target.known:
            log.warning("%s: target %s is %s", info.name, target.name, target.note)
        given, chosen = network, Formats(precision, weights, fp8)
        self.device = f"{info.name} ({target.name}, {chosen}, {info.driver})"
        self.precision = precision
        self.fp8 = fp8
        self.small = info.small
        self._attempt = attempt
        self.tolerance = chosen.tolerance
        self.network = network = rounded(network, weights)
        in_fp8 = fp8_network(network, target) if fp8 else None
        self._device = device
        self._libraries = libraries
        compiler = compiler or Compiler(device)
        probe = uneven_batch(CHECKED_MOVES, seed=7)
        expected = Expected(probe, ReferenceBackend(network).evaluate)
        checks = {0: Check(expected, limits(precision))}
        if in_fp8 is not None:
            wanted = Expected(probe, ReferenceBackend(in_fp8).evaluate)
            checks[FP8_POSITIONS] = Check(wanted, FP8_LIMITS, exact=expected)
        if tuner is None and not deterministic:
            # A program measures in a child, which a candidate may end.
            measures = tuning is Tuning.BEFORE and not crashes.records()
            tuner = Tuner(
                device, compiler, precision, libraries, progress=log.info, measures=measures, known=known
            )
        model = model_chooser(target, precision, info.multiprocessors, deterministic=deterministic)
        choose = model if tuner is None else tuner.choose
        blocks = info.multiprocessors if info.cooperative and not deterministic else 0
        plan = Plan(
            network,
            target,
            precision,
            choose,
            weights,
            blocks,
            not deterministic,
            in_fp8,
            form,
            None if tuner is None else tuner.measurements,
        )
        self._sizes = buckets
        self._given, self._plan, self._formats, self._tuning = given, plan, chosen, tuning

        def opened(plan: Plan, tuner: MeasuringChooser | None) -> Executor:
            planned = partial(_start, list(checks.values())) if check else lambda: None
            executor = open_executor(
                device,
                compiler,
                plan,
                buckets,
                libraries=libraries,
                tuner=tuner,
                planned=planned,
                slices=slices,
            )
            self.self_check = SelfCheck(executor, checks, self.device)
            try:
                if check:
                    self.self_check.run()
                    self.self_check.choose_lanes()
            except BaseException:
                executor.close()
                raise
            return executor

        try:
            try:
                self.executor = opened(plan, tuner)
            except NotMeasured:
                if tuning is Tuning.BEFORE:
                    self._measure(tuner, buckets)
                    self.executor = opened(plan, tuner)
                else:
                    self.executor = self._open_by_guess(opened, tuner)
        except (OpeningError, SelfCheckError) as error:
            raise BackendError(str(error)) from error
        self._executor: Executor | None = self.executor
        self.buckets = self.executor.buckets
        self.max_batch = self.buckets[-1]
        plan.forget()  # all is on the device

    def _open_by_guess(
        self, opened: Callable[[Plan, MeasuringChooser | None], Executor], tuner: MeasuringChooser | None
    ) -> Executor:
        """By guesses where nothing was measured yet; by measurements, after all, where those do not work.
        Raises OpeningError and SelfCheckError."""
        assert isinstance(tuner, Tuner)
        info = self._device.info
        quick = QuickChooser(info, self.precision, self._libraries, tuner.known)
        then = "what is fastest is measured while nobody waits for it"
        announce(
            f"{info.name}: it begins by guesses; {then if self._tuning is Tuning.BEHIND else 'tuning=off'}"
        )
        try:
            executor = opened(_guessed(self._plan, quick), None)
        except (OpeningError, SelfCheckError, DeviceError) as error:
            log.warning("%s; measuring how it is to be computed", error)
            if crashes.records():
                self._measure(tuner, self._sizes)
            else:
                tuner.measures = True
            return opened(self._plan, tuner)
        self.provisional = True
        return executor

    def _measure(self, tuner: MeasuringChooser | None, sizes: tuple[int, ...]) -> None:
        """Have a child measure what the tuner does not know. Raises OpeningError."""
        assert isinstance(tuner, Tuner)
        info = self._device.info
        needs = needs_of(self._plan, sizes, info.multiprocessors)
        announce(f"measuring matrix products on {info.name}; the next start needs none of it")

        def progress(text: str) -> None:
            announce(f"measuring matrix products on {info.name}, {text} done")

        try:
            tuner.known |= measure_in_child(self._job(needs), unshared, progress)
        except DeviceError as error:
            raise OpeningError(f"{info.name}: {error}") from error

    def _job(self, needs: Needs) -> Job:
        return Job(self._device.info, self.precision, needs, libraries=bool(self._libraries))

    def evaluate(self, batch: PositionBatch) -> EvaluationBatch:
        return self.evaluate_parts([batch])

    def evaluate_parts(self, parts: Sequence[PositionBatch]) -> EvaluationBatch:
        if self._executor is None:
            raise BackendError("the gpu backend is closed")
        try:
            return self._executor.evaluate(parts)
        except NotFiniteOutput as error:
            raise NotFiniteError(f"{self.device}: {error}") from error
        except (DeviceError, ValueError) as error:
            raise BackendError(f"{self.device}: {error}") from error

    def computes_beside(self, positions: int) -> bool:
        executor = self._executor
        return executor is not None and any(positions <= size for size in executor.beside)

    def lend(self) -> Lent | None:
        return None if self._executor is None else lend(self._executor, self.device)

    def tuned(self, slices: Slice, progress: Callable[[str], None]) -> Backend | None:
        info = self._device.info
        if not self.provisional or self._tuning is not Tuning.BEHIND:
            return None
        try:
            needs = needs_of(self._plan, self.buckets, info.multiprocessors)
            self._plan.forget()
            known = measure_in_child(self._job(needs), slices, progress)
        except (DeviceError, PlanError) as error:
            raise BackendError(f"{info.name}: {error}") from error
        found = _open_on(
            info,
            self._given,
            self._formats,
            self.buckets,
            deterministic=False,
            tuning=Tuning.OFF,
            slices=slices,
            with_libraries=bool(self._libraries),
            known=known,
        )
        if found.provisional or found.buckets != self.buckets:
            found.close()
            why = "not all could be measured" if found.provisional else "there is no memory to open it twice"
            raise BackendError(f"{info.name}: {why}; the next start has what was measured")
        return found

    def memory(self) -> tuple[int, int] | None:
        if self._executor is None:
            return None
        try:
            self._device.activate()
            return self._device.info.memory - self._device.free_memory(), self._device.info.memory
        except DeviceError as error:
            log.debug("%s: %s", self.device, error)
            return None

    def sensors(self) -> Sensors:
        return read_sensors(self._device.info)

    def close(self) -> None:
        if self._executor is not None:
            self._executor.close()
            self._executor = None
            for library in self._libraries:
                library.close()
            self._device.close()
            if self._attempt is not None:
                self._attempt.end()
