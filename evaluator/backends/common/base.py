# SPDX-License-Identifier: GPL-3.0-or-later
"""The interface that every backend implements.

A backend holds one network on one device. `open_backend` (see `evaluator.backends`) opens it, at most
`max_in_flight` threads use it concurrently, and its owner closes it once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from evaluator.backends.common.agreement import FP32, Tolerance
from evaluator.backends.common.buffer_lease import BufferLease
from evaluator.backends.common.device_lease import DeviceLease
from evaluator.backends.common.sensors import Sensors
from protocol.batch import EvaluationBatch, PositionBatch
from protocol.common.closing import Closing
from protocol.common.printing import ReportedError


class BackendError(ReportedError):
    """A backend could not be opened or failed to evaluate. The message contains a remedy."""


class NotFiniteError(BackendError):
    """The device works, but a result is infinite or NaN."""


class Backend(Closing, ABC):
    """One network on one device.

    name: backend name ("onnx"). device: hardware and number format, in words. max_batch: maximum positions
    per call. max_in_flight: concurrent calls of `evaluate` (1 unless uploads, compute and downloads of
    several batches overlap). side_by_side: True if concurrent batches compute at the same time, each on some
    of the processor's `threads`; False if one after the other. buckets: batch sizes that the device runs, to
    which batches are padded; empty if any size runs as it is. finite: `evaluate` raises NotFiniteError
    instead of returning NaN or infinity. on_host: it computes on this machine's CPU, as every standby does.
    small: a CPU may be faster than the device. provisional: it will be faster after tuning (see `tuned`), so
    its times must not be cached. precision: number formats; after a colon why, with figures. tolerance:
    maximum error against the float64 reference, checked by `verify` and the conformance suite.
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
    precision: str = ""
    tolerance: Tolerance = FP32

    @abstractmethod
    def evaluate(self, batch: PositionBatch) -> EvaluationBatch:
        """Evaluate a batch of 1 to max_batch positions.

        The inputs are already validated (offsets ascending, indices in range). Raises BackendError if the
        device fails; the caller may retry the batch on another backend.
        """

    def evaluate_parts(self, parts: Sequence[PositionBatch]) -> EvaluationBatch:
        """Evaluate the concatenation of several parts as one batch.

        Backends that copy their input anyway override this to concatenate while copying.
        """
        return self.evaluate(PositionBatch.concatenate(parts))

    def computes_beside(self, positions: int) -> bool:
        """Return True if a batch of this size may compute at the same time as any other, in a backend that
        otherwise runs batches in sequence."""
        return False

    def lease_buffers(self) -> BufferLease | None:
        """Lease all batch buffers, for the loop without the interpreter. Returns None if the backend does not
        support it or a buffer is in use."""
        return None

    def memory(self) -> tuple[int, int] | None:
        """Return the used (by all processes) and total bytes of device memory; None if unknown. Any thread
        may call it until the backend is closed."""
        return None

    def sensors(self) -> Sensors | None:
        """Return power and temperature of the device; None without sensors. May wait for a driver. Any thread
        may call it, even after `close`."""
        return None

    def tuned(self, lease: DeviceLease, progress: Callable[[str], None]) -> Backend | None:
        """Return a tuned backend for the same network and device, or None if tuning gains nothing. This
        backend stays usable meanwhile. Blocks for minutes.

        lease: entered for all use of the device. progress: called with progress in words. Raises BackendError
        on failure, and Stopped.
        """
        return None

    def close(self) -> None:
        """Free the device. No call may be inside `evaluate`. Idempotent."""
