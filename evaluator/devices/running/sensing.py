# SPDX-License-Identifier: GPL-3.0-or-later
"""Power and temperature of the devices, read in a thread of their own.

A driver may take milliseconds for a reading, or hang with its device. The thread reads every few seconds, and
callers get the last reading.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from evaluator.backends.common.base import Backend

log = logging.getLogger("evaluator.devices")

PERIOD_S = 3.0
"""Interval between readings."""

KEPT_S = 15.0
"""Maximum age of a reported reading; beyond it the driver does not answer."""


class Sensing:
    """The last reading of every device. backends: returns one backend per device name, on any thread."""

    def __init__(
        self, backends: Callable[[], Mapping[str, Backend]], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._backends = backends
        self._clock = clock
        self._lock = threading.Lock()
        self._read: dict[str, tuple[float, dict[str, float]]] = {}
        self._wanted = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._work, name="sensors", daemon=True)

    def start(self) -> None:
        """Start reading every PERIOD_S seconds."""
        self._thread.start()

    def look(self) -> None:
        """Read soon, because the devices have changed."""
        self._wanted.set()

    def stop(self) -> None:
        """Stop reading. Does not wait for a hanging driver. Idempotent."""
        self._ended = True
        self._wanted.set()

    def last(self) -> dict[str, dict[str, float]]:
        """Return "watts" and "celsius" by device, as far as known. Never blocks."""
        oldest = self._clock() - KEPT_S
        with self._lock:
            return {name: dict(known) for name, (at, known) in self._read.items() if at >= oldest}

    def read(self) -> None:
        """Read the sensors of every device."""
        backends = self._backends()
        with self._lock:
            self._read = {name: each for name, each in self._read.items() if name in backends}
        for name, backend in backends.items():
            sensors = backend.sensors()
            known = {} if sensors is None else sensors.measured()
            with self._lock:
                if known:
                    self._read[name] = self._clock(), known
                else:
                    self._read.pop(name, None)

    def _work(self) -> None:
        while not self._ended:
            try:
                self.read()
            except Exception:  # an unexpected driver error only costs the readings
                log.exception("the devices' sensors cannot be read; status goes without them")
                return
            self._wanted.wait(PERIOD_S)
            self._wanted.clear()
