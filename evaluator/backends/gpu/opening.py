# SPDX-License-Identifier: GPL-3.0-or-later
"""Opens a network on a GPU from measurements or guesses, checks it against the reference, and reopens it
after tuning."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

from evaluator.backends.common import crashes
from evaluator.backends.common.base import BackendError
from evaluator.backends.common.crashes import OpeningAttempt, Phase
from evaluator.backends.common.device_lease import DeviceLease, exclusive_lease
from evaluator.backends.common.probe import uneven_batch
from evaluator.backends.common.progress import announce
from evaluator.backends.gpu.blas.discovery import open_libraries
from evaluator.backends.gpu.blas.library import Library
from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.compiler import Compiler
from evaluator.backends.gpu.driver.device import DeviceError, DeviceInfo, Gpu
from evaluator.backends.gpu.driver.discovery import open_device, subject_of
from evaluator.backends.gpu.driver.target import Target
from evaluator.backends.gpu.options import Formats, fp8_network, rounded
from evaluator.backends.gpu.plan.needs import MeasuringChooser, needs_of
from evaluator.backends.gpu.plan.persistent_form import PersistentForm
from evaluator.backends.gpu.plan.plan import Plan
from evaluator.backends.gpu.plan.program import PlanError
from evaluator.backends.gpu.plan.tiles import Measured, model_chooser
from evaluator.backends.gpu.run.buckets import BUCKETS
from evaluator.backends.gpu.run.executor import Executor
from evaluator.backends.gpu.run.opening import DeviceOpeningError, open_executor
from evaluator.backends.gpu.run.self_check import (
    CHECKED_MOVES,
    FP8_LIMITS,
    Check,
    Expected,
    SelfCheck,
    SelfCheckError,
    limits,
)
from evaluator.backends.gpu.tuning.child import TuningJob, measure_in_child
from evaluator.backends.gpu.tuning.quick import QuickChooser
from evaluator.backends.gpu.tuning.tune import NotMeasured, Tuner
from evaluator.backends.gpu.tuning.when import Tuning
from evaluator.backends.reference.backend import ReferenceBackend
from evaluator.network.spec import NetworkSpec
from protocol.common.closing import Closing

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Options for opening a network.

    deterministic: the same position gives the same bits at every batch size. buckets: batch sizes, ascending.
    tuning: when to measure kernels that are not cached. libraries: use the vendor's, too. check: compare
    every bucket with the reference. form: of the single launch for all encoders; None to choose by speed.
    trial: not served, so its guesses are not announced.
    """

    formats: Formats = field(default_factory=Formats)
    deterministic: bool = False
    buckets: tuple[int, ...] = BUCKETS
    tuning: Tuning = Tuning.BEFORE
    libraries: bool = True
    check: bool = True
    form: PersistentForm | None = None
    trial: bool = False


class _Reference:
    """A network in its formats, and the reference's results, which all its devices share.

    given: the network as in its file. network: with the encoders' weights rounded, if requested. in_fp8: that
    with 8-bit products; None without. checks: expected results, by the smallest batch size.
    """

    def __init__(self, given: NetworkSpec, formats: Formats, target: Target) -> None:
        """Raises BackendError."""
        self.given = given
        self.network = rounded(given, formats.weights)
        self.in_fp8 = fp8_network(self.network, target) if formats.fp8 else None
        probe = uneven_batch(CHECKED_MOVES, seed=7)
        expected = Expected(probe, ReferenceBackend(self.network).evaluate)
        self.checks = {0: Check(expected, limits(formats.stored))}
        if self.in_fp8 is not None:
            rounded_too = Expected(probe, ReferenceBackend(self.in_fp8).evaluate)
            self.checks[formats.fp8] = Check(rounded_too, FP8_LIMITS, exact=expected)


_references: WeakValueDictionary[tuple[int, Formats, Target], _Reference] = WeakValueDictionary()
"""By the identity of the network, which each value keeps alive."""

_referring = threading.Lock()

_measuring: dict[str, threading.Lock] = {}
"""Held while products are measured on a device of that name."""

_checking: dict[tuple[str, int], threading.Lock] = {}
"""Held while a network is checked and timed on a device: others may open there, too."""


def _reference(network: NetworkSpec, formats: Formats, target: Target) -> _Reference:
    """Return what a network's open devices share. Raises BackendError."""
    key = id(network), formats, target
    with _referring:
        found = _references.get(key)
        if found is None:
            found = _references[key] = _Reference(network, formats, target)
        return found


def open_on(
    info: DeviceInfo,
    network: NetworkSpec,
    wanted: Wanted,
    *,
    lease: DeviceLease = exclusive_lease,
    known: Mapping[Product, Sequence[Measured]] | None = None,
) -> OpenNetwork:
    """Open a device and the network on it. lease, known: as in OpenNetwork. Raises BackendError."""
    attempt = OpeningAttempt(subject_of(info), Phase.OPENING)
    try:
        device = open_device(info)
    except DeviceError as error:
        attempt.end()
        raise BackendError(str(error)) from error
    libraries: tuple[Library, ...] = ()
    try:
        if wanted.libraries and not wanted.deterministic:
            libraries, problems = open_libraries(info, wanted.formats.stored)
            for name, why in problems.items():
                log.info("%s: without %s: %s", info.name, name, why)
        opened = OpenNetwork(
            network, device, wanted, libraries=libraries, lease=lease, known=known, attempt=attempt
        )
        attempt.enter(Phase.USING)
        return opened
    except BaseException as error:
        attempt.end()
        for library in libraries:
            library.close()
        device.close()
        if isinstance(error, DeviceError):
            raise BackendError(f"{info.name}: {error}") from error
        raise


class OpenNetwork(Closing):
    """A network that is open on a device and has passed the self-check. It owns the device and libraries.

    network: with the encoders' weights rounded, if requested. provisional: it runs by guesses.
    """

    def __init__(
        self,
        network: NetworkSpec,
        device: Gpu,
        wanted: Wanted,
        *,
        libraries: Sequence[Library] = (),
        compiler: Compiler | None = None,
        tuner: MeasuringChooser | None = None,
        lease: DeviceLease = exclusive_lease,
        known: Mapping[Product, Sequence[Measured]] | None = None,
        attempt: OpeningAttempt | None = None,
    ) -> None:
        """lease: of the device, for the self-check. known: measurements in addition to the cache. attempt:
        ends with `close`. Raises BackendError and DeviceError."""
        info, formats = device.info, wanted.formats
        if not info.target.is_listed:
            log.warning("%s: target %s: %s", info.name, info.target.name, info.target.note)
        self.name = f"{info.name} ({info.target.name}, {formats}, {info.driver})"
        self.device, self.wanted, self.provisional = device, wanted, False
        self._stored, self._libraries, self._attempt, self._lease = network, libraries, attempt, lease
        self._reference = _reference(network, formats, info.target)
        self.network = self._reference.network
        self._compiler = compiler or Compiler(device)
        if tuner is None and not wanted.deterministic:
            # A command measures in a child process, because a candidate may crash.
            measures = wanted.tuning is Tuning.BEFORE and not crashes.records()
            tuner = Tuner(
                device,
                self._compiler,
                formats.stored,
                libraries,
                progress=log.info,
                measures=measures,
                known=known,
            )
        self._plan = self._make_plan(tuner)
        try:
            self.executor, self.self_check = self._open_measured(tuner)
        except (DeviceOpeningError, SelfCheckError) as error:
            raise BackendError(str(error)) from error
        self._plan.forget()  # the device has all weights now

    def _make_plan(self, tuner: MeasuringChooser | None) -> Plan:
        info, wanted, stored = self.device.info, self.wanted, self.wanted.formats.stored
        deterministic = wanted.deterministic
        model = model_chooser(info.target, stored, info.multiprocessors, deterministic=deterministic)
        return Plan(
            self.network,
            info.target,
            stored,
            model if tuner is None else tuner.choose,
            wanted.formats.weights,
            blocks=info.multiprocessors if info.cooperative and not deterministic else 0,
            fused=not deterministic,
            rounded=self._reference.in_fp8,
            rounded_from=wanted.formats.fp8,
            form=wanted.form,
            measurements=None if tuner is None else tuner.measurements,
        )

    def _open_measured(self, tuner: MeasuringChooser | None) -> tuple[Executor, SelfCheck]:
        """Open from measurements; if some are missing, measure in a child process or guess. Raises
        OpeningError and SelfCheckError."""
        try:
            return self._open(self._plan, tuner)
        except NotMeasured:
            assert isinstance(tuner, Tuner)
        if self.wanted.tuning is Tuning.BEFORE:
            self._measure(tuner)
            return self._open(self._plan, tuner)
        return self._open_by_guess(tuner)

    def _open(self, plan: Plan, tuner: MeasuringChooser | None) -> tuple[Executor, SelfCheck]:
        wanted = self.wanted
        executor = open_executor(
            self.device,
            self._compiler,
            plan,
            wanted.buckets,
            libraries=self._libraries,
            tuner=tuner,
            planned=self._start_checks if wanted.check else lambda: None,
            lease=self._lease,
        )
        self_check = SelfCheck(executor, self._reference.checks, self.name)
        try:
            if wanted.check:
                info = self.device.info
                with _checking.setdefault((info.name, info.index), threading.Lock()):
                    self_check.run()
                    self_check.choose_streams()
        except BaseException:
            executor.close()
            raise
        return executor, self_check

    def _start_checks(self) -> None:
        for check in self._reference.checks.values():
            check.expected.start()

    def _open_by_guess(self, tuner: Tuner) -> tuple[Executor, SelfCheck]:
        """Open by guesses; if that fails, by measurements. Raises DeviceOpeningError and SelfCheckError."""
        info, wanted = self.device.info, self.wanted
        quick = QuickChooser(info, wanted.formats.stored, self._libraries, tuner.known)
        if not wanted.trial:
            behind = wanted.tuning is Tuning.BEHIND
            then = "the fastest are measured in the background" if behind else "tuning=off"
            announce(f"{info.name}: it starts with estimated kernels; {then}")
        # One program per batch size, sharing the packed weights.
        guessed = replace(self._plan, choose=quick.choose, measurements=None, blocks=0, weights={})
        try:
            opened = self._open(guessed, None)
        except (DeviceOpeningError, SelfCheckError, DeviceError) as error:
            log.warning("%s; measuring the kernels again", error)
            if crashes.records():
                self._measure(tuner)
            else:
                tuner.measures = True
            return self._open(self._plan, tuner)
        self.provisional = True
        return opened

    def _measure(self, tuner: Tuner) -> None:
        """Measure the products that the tuner does not know in a child process. Raises DeviceOpeningError."""
        info = self.device.info
        announce(f"measuring matrix products on {info.name}; the next start needs none of it")

        def progress(text: str) -> None:
            announce(f"measuring matrix products on {info.name}, {text} done")

        job = self._job(self.wanted.buckets)
        # The first of equal devices measures for the others.
        with _measuring.setdefault(info.name, threading.Lock()):
            tuner.read_cache()
            if all(product in tuner.known for product in job.needs.products):
                return
            try:
                tuner.known |= measure_in_child(job, exclusive_lease, progress)
            except DeviceError as error:
                raise DeviceOpeningError(f"{info.name}: {error}") from error

    def _job(self, buckets: tuple[int, ...]) -> TuningJob:
        info = self.device.info
        needs = needs_of(self._plan, buckets, info.multiprocessors)
        return TuningJob(info, self.wanted.formats.stored, needs, libraries=bool(self._libraries))

    def measured_anew(self, lease: DeviceLease, progress: Callable[[str], None]) -> OpenNetwork | None:
        """Measure the candidates and open the network again with the fastest, while this one stays open.
        Returns None if this one does not run by guesses or has another `tuning`. Raises BackendError."""
        info, buckets = self.device.info, self.executor.buckets
        if not self.provisional or self.wanted.tuning is not Tuning.BEHIND:
            return None
        try:
            job = self._job(buckets)
            self._plan.forget()
            known = measure_in_child(job, lease, progress)
        except (DeviceError, PlanError) as error:
            raise BackendError(f"{info.name}: {error}") from error
        again = replace(
            self.wanted, buckets=buckets, tuning=Tuning.OFF, libraries=bool(self._libraries), check=True
        )
        found = open_on(info, self._stored, again, lease=lease, known=known)
        if found.provisional or found.executor.buckets != buckets:
            found.close()
            why = "not all could be measured" if found.provisional else "there is no memory to open it twice"
            raise BackendError(f"{info.name}: {why}; the next start uses the measurements")
        return found

    def close(self) -> None:
        """Close executor, libraries and device."""
        self.executor.close()
        for library in self._libraries:
            library.close()
        self.device.close()
        if self._attempt is not None:
            self._attempt.end()
