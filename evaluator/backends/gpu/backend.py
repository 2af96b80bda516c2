# SPDX-License-Identifier: GPL-3.0-or-later
"""The `gpu` backend: a network on an AMD or NVIDIA GPU, with evaluator/backends/gpu and the kernels in
evaluator/backends/gpu/kernels.

`open` imports the modules that it needs, so that a start without a GPU does not pay for them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from evaluator.backends.common.base import Backend, BackendError, NotFiniteError
from evaluator.backends.common.device_lease import DeviceLease, exclusive_lease
from evaluator.backends.common.progress import announce, warn
from evaluator.backends.common.sensors import Sensors
from evaluator.backends.gpu.driver.device import DeviceError, NotFiniteOutput
from evaluator.backends.gpu.driver.discovery import fastest, found_devices, select, select_all
from evaluator.backends.gpu.driver.sensors import read_sensors
from evaluator.backends.gpu.tuning.when import Tuning
from evaluator.settings import ALONE, DeviceSettings
from protocol.batch import EvaluationBatch, PositionBatch

if TYPE_CHECKING:
    from evaluator.backends.common.buffer_lease import BufferLease
    from evaluator.backends.gpu.opening import OpenNetwork
    from evaluator.backends.gpu.precision import Fp8Choice
    from evaluator.network.spec import NetworkSpec

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
    """Return True if the default GPU may be slower than the CPU."""
    usable = found_devices().usable
    return bool(usable) and fastest(usable).small


def named_devices(device: str) -> list[str]:
    """Return one name per device for "0+1", "all" or any other value of the option. Raises BackendError."""
    found = found_devices()
    devices = found.devices
    if not devices:
        return [device]  # opening it reports the error
    try:
        return [f"{each.vendor}:{each.index}" for each in select_all(devices, device, found.excluded)]
    except DeviceError as error:
        raise BackendError(str(error)) from error


def open(
    network: NetworkSpec,
    settings: DeviceSettings = ALONE,
    *,
    device: str | int = "",
    precision: str = "auto",
    weights: str = "",
    deterministic: bool = False,
    max_batch: int | None = None,
    buckets: str = "",
    tuning: str = "",
    libraries: bool = True,
) -> GpuBackend:
    """Open a network on a GPU.

    device: see `driver.discovery.select`. precision: fp16, bf16, fp32, fp8 for the encoders' products in e4m3
    and the rest in fp16, or auto for fp16 or fp8 (see precision.py). weights: int8 or int4 rounds the
    encoders' weights; empty keeps those of the precision. deterministic: the same position gives the same
    bits at every batch size. max_batch: smaller values save memory (default: 1024 or slightly more; 256 on a
    GPU that shares the CPU's memory). buckets: batch sizes as in "1+8+64" (default: usual sizes up to
    max_batch). tuning: replaces that of the settings; with `behind`, the caller of `tuned` measures.
    libraries: use the vendor's libraries, too.
    """
    from evaluator.backends.common.batches import batch_sizes
    from evaluator.backends.gpu.opening import Wanted, open_on
    from evaluator.backends.gpu.options import AUTO, formats, tuning_of
    from evaluator.backends.gpu.run.buckets import usual_buckets

    chosen, when = formats(precision, weights), tuning_of(tuning or settings.tuning)
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
    wanted = Wanted(chosen, deterministic, sizes, when, libraries)
    if precision != AUTO or weights:
        return GpuBackend(open_on(info, network, wanted))
    from evaluator.backends.gpu.precision import Fp8Choice

    choice = Fp8Choice(info, network, wanted)
    backend = GpuBackend(choice.open(), choice)
    if choice.verdict is None and when is Tuning.BEFORE:
        better = backend.tuned(exclusive_lease, announce)
        if better is not None:
            backend.close()
            return better
    return backend


class GpuBackend(Backend):
    """A backend with two batches in flight. It owns the opened network."""

    name = "gpu"
    max_in_flight = 2
    finite = True

    def __init__(self, opened: OpenNetwork, choice: Fp8Choice | None = None) -> None:
        self._opened, self._choice, self._closed = opened, choice, False
        self.executor, self.self_check = opened.executor, opened.self_check
        self.formats = opened.wanted.formats
        self.tolerance = self.formats.tolerance
        self.device, self.network, self.precision = opened.name, opened.network, self._described()
        self.small, self.provisional = opened.device.info.small, opened.provisional or self._is_undecided
        self.buckets = self.executor.buckets
        self.max_batch = self.buckets[-1]

    def evaluate(self, batch: PositionBatch) -> EvaluationBatch:
        return self.evaluate_parts([batch])

    def evaluate_parts(self, parts: Sequence[PositionBatch]) -> EvaluationBatch:
        if self._closed:
            raise BackendError("the gpu backend is closed")
        try:
            return self.executor.evaluate(parts)
        except NotFiniteOutput as error:
            raise NotFiniteError(f"{self.device}: {error}") from error
        except (DeviceError, ValueError) as error:
            raise BackendError(f"{self.device}: {error}") from error

    def computes_beside(self, positions: int) -> bool:
        return not self._closed and any(positions <= size for size in self.executor.beside)

    def lease_buffers(self) -> BufferLease | None:
        from evaluator.backends.gpu.buffer_lease import lease_buffers

        return None if self._closed else lease_buffers(self.executor, self.device)

    @property
    def _is_undecided(self) -> bool:
        choice = self._choice
        return choice is not None and choice.verdict is None and self._opened.wanted.tuning is not Tuning.OFF

    def _described(self) -> str:
        verdict = None if self._choice is None else self._choice.verdict
        return str(self.formats) if verdict is None else f"{self.formats}: {verdict.text}"

    def tuned(self, lease: DeviceLease, progress: Callable[[str], None]) -> GpuBackend | None:
        found = self._opened.measured_anew(lease, progress)
        if self._choice is not None and self._is_undecided:
            try:
                rounded = self._choice.decide(found or self._opened, lease, progress)
            except BackendError as error:
                log.warning("%s: %s stays: %s", self.device, self.formats, error)
                rounded = None
            except BaseException:
                if found is not None:
                    found.close()
                raise
            if rounded is not None and found is not None:
                found.close()
            found = rounded or found
        if found is None:
            self.provisional, self.precision = False, self._described()
        return None if found is None else GpuBackend(found, self._choice)

    def memory(self) -> tuple[int, int] | None:
        device = self._opened.device
        if self._closed:
            return None
        try:
            device.activate()
            return device.used_memory(), device.info.memory
        except DeviceError as error:
            log.debug("%s: %s", self.device, error)
            return None

    def sensors(self) -> Sensors:
        return read_sensors(self._opened.device.info)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._opened.close()
