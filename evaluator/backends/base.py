# SPDX-License-Identifier: GPL-3.0-or-later
"""The interface that every backend implements.

A backend holds one network on one device. It is opened by `open_backend` (see `evaluator.backends`), used
from at most `max_in_flight` threads at a time, and closed once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from evaluator.backends.agreement import FP32, Tolerance
from evaluator.backends.buffer_lease import BufferLease
from evaluator.device_lease import DeviceLease
from evaluator.sensors import Sensors
from protocol.batch import EvaluationBatch, PositionBatch


class BackendError(Exception):
    """A backend could not be opened or failed to evaluate. The message says what to do about it."""


class NotFiniteError(BackendError):
    """The device works, but what it computed is infinite or not a number."""


class Backend(ABC):
    """One network on one device.

    name: the name it is opened by ("onnx"). device: the hardware
    and the precision of its numbers, in words. max_batch: the most positions
    one call takes. max_in_flight: how many threads may be inside `evaluate` at once (1 unless uploads,
    compute and downloads of several batches overlap). side_by_side: whether these compute at the same time,
    each with a part of the processor's `threads`, and not one after the other. buckets: the sizes the
    device really runs, a batch being padded to the next one; empty if any size runs as it is. finite:
    `evaluate` returns finite numbers only, and raises NotFiniteError where others would come out.
    on_host: it computes on the processors of this machine, as every standby does. small: a CPU may be faster
    than the device. provisional: it is not as fast as it will be once it has been tuned (see `tuned`), so
    that its times are not to be kept. tolerance: how far results may be from the float64 reference, which
    `verify` and the conformance suite hold the backend to.
    """

    name: str
    device: str
    max_batch: int = 1024
    max_in_flight: int = 1
    side_by_side: bool = False
    threads: int = 1
    buckets: tuple[int, ...] = ()
    finite: bool = False
    on_host: bool = False
    small: bool = False
    provisional: bool = False
    tolerance: Tolerance = FP32

    @abstractmethod
    def evaluate(self, batch: PositionBatch) -> EvaluationBatch:
        """Evaluate a batch of 1 to max_batch positions.

        The inputs are checked already (offsets ascending, indices in range). Raises BackendError when the
        device fails; the caller may try another backend with the same batch.
        """

    def evaluate_parts(self, parts: Sequence[PositionBatch]) -> EvaluationBatch:
        """The same for a batch that comes in parts: what they say one after the other.

        To be overridden by who copies its input anyway, and can put it together there.
        """
        return self.evaluate(PositionBatch.concatenate(parts))

    def computes_beside(self, positions: int) -> bool:
        """Whether a batch of so many positions may compute at the same time as another one, of any size,
        though most of them do so one after the other."""
        return False

    def lease_buffers(self) -> BufferLease | None:
        """All its batches in flight, for a loop without the interpreter. None if it has no such, or while one
        is in use."""
        return None

    def memory(self) -> tuple[int, int] | None:
        """Bytes of the device's memory that are in use, by whomever, and that it has; None for a device that
        does not say. Any thread, until closed."""
        return None

    def sensors(self) -> Sensors | None:
        """Power and temperature of the device; None for one that has no such. May take the time of a driver.
        Any thread, also once it is closed."""
        return None

    def tuned(self, lease: DeviceLease, progress: Callable[[str], None]) -> Backend | None:
        """The same network on the same device by what is now measured to be fastest, beside this one, which
        others may be using meanwhile; None where nothing is to be gained. Blocks, for minutes.

        lease: for all that takes the device. progress: told how far it is, in words. Raises BackendError
        where it fails, and Stopped.
        """
        return None

    def close(self) -> None:  # noqa: B027 - most backends have nothing to free
        """Free the device. Nothing may be inside `evaluate`. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
