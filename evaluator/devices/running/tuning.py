# SPDX-License-Identifier: GPL-3.0-or-later
"""Background tuning: measures a backend that was opened by guesses, and reopens it while it serves.

One thread does it, for one network and device at a time. It leases the device for a few milliseconds, in
which no batch begins. It does so while the device is idle, and otherwise for a small share of the time. The
tuned backend replaces the old one between two batches.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from evaluator.backends.common.base import BackendError
from evaluator.backends.common.device_lease import Stopped
from evaluator.backends.common.progress import announce
from evaluator.devices.runners import Device, Runner, now_ms
from evaluator.devices.served_network import ServedNetwork

log = logging.getLogger("evaluator.tuning")

QUIET_MS = 30.0
"""Idle time after which a device counts as free; the pauses between a search's batches are shorter."""

PLAYING_MS = 2000.0
"""Time after the last request of class play in which more are expected."""

SHARE = 0.1
"""Share of a busy device's time for leases, including the wait for batches in flight."""

SHARE_OF_PLAY = 0.005
"""The same during play: it delays fewer than one batch in a hundred, by a few milliseconds."""

LOOK_S = 0.01
"""Interval of checks for a free device."""

JOIN_S = 1.0
"""Time limit of `stop`. Opening a network may take longer; it then ends by itself without effect."""


class BackgroundTuning:
    """Tunes networks that are served by guesses.

    lock: the dispatcher's. networks: its list of served networks. changed: condition of the same lock,
    notified when a batch ends on a reserved device. notify: wakes a device to check the queues; called with
    the lock held. on_moved: see DeviceFailover.
    """

    def __init__(
        self,
        lock: threading.RLock,
        networks: Sequence[ServedNetwork],
        changed: threading.Condition,
        notify: Callable[[Device], None],
        on_moved: Callable[[], None],
    ) -> None:
        self._lock = lock
        self._networks = networks
        self._changed = changed
        self._notify = notify
        self._on_moved = on_moved
        self._waiting: deque[tuple[ServedNetwork, Runner]] = deque()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def add(self, network: ServedNetwork) -> None:
        """Queue a network for tuning on the devices where it runs by guesses. With the lock held."""
        found = [(network, runner) for runner in network.runners if runner.backend.provisional]
        self._waiting += found
        if found and self._thread is None:
            self._thread = threading.Thread(target=self._work, name="tuning", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the running measurement, and begin no other. Without the lock."""
        with self._lock:
            self._stopping = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(JOIN_S)

    # -- its thread --------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._lock:
                if self._stopping or not self._waiting:
                    self._thread = None
                    return
                network, runner = self._waiting.popleft()
            name = runner.device.name
            try:
                self._tune(network, runner)
            except Stopped:
                log.debug("%s: not tuned for network %s to the end", name, network.info.name)
            except BackendError as error:
                log.warning(
                    "%s: network %s stays as it is: %s (tuning=before measures at the next start)",
                    name,
                    network.info.name,
                    error,
                )
            except Exception:  # the served backend stays in use
                log.exception("%s: network %s stays as it is", name, network.info.name)
            finally:
                runner.device.tuning = ""

    def _tune(self, network: ServedNetwork, runner: Runner) -> None:
        """Tune a network on a device. Raises BackendError and Stopped."""

        def progress(text: str) -> None:
            runner.device.tuning = f"measuring matrix products for network {network.info.name}, {text}"

        progress("none so far")
        lease = partial(self._lease, network, runner)
        backend = runner.backend.tuned(lease, progress)
        if backend is None:
            return
        try:
            assert runner.calibrate is not None
            model, save_curve = runner.calibrate(backend, lease=lease)
            if backend.precision.partition(":")[0] != runner.backend.precision.partition(":")[0]:
                self._await_pause(network)  # Other formats are another network to clients, which begin anew.
            with lease(), self._lock:
                self._check(network)
                if runner.device.stuck or not runner.in_use:
                    raise BackendError("the device has failed; the next start uses the measurements")
                before, policy = runner.model, runner.policy
                backend, runner.backend = runner.backend, backend
                policy.model, runner.save_curve = model, save_curve
                self._on_moved()
        finally:
            backend.close()  # the one of the two that is not in use
        runner.device.tuning = ""
        rates = [round(each.throughput(model.knee)) for each in (before, model)]
        announce(
            f"{runner.backend.device}: measured; batches of {model.knee} are evaluated at {rates[1]} "
            f"positions/s now, by guesses it was {rates[0]}"
        )

    @contextmanager
    def _lease(self, network: ServedNetwork, runner: Runner) -> Iterator[None]:
        """See evaluator.backends.common.device_lease.DeviceLease."""
        device = runner.device
        with self._lock:
            self._check(network)
            while not self._is_free(device, now_ms()):
                self._wait(network)
            began = now_ms()
            device.reserved = True
            try:
                while device.busy:
                    self._wait(network)
            except Stopped:
                self._take_back(device, began)
                raise
        try:
            yield
        finally:
            with self._lock:
                self._take_back(device, began)

    def _await_pause(self, network: ServedNetwork) -> None:
        with self._lock:
            while self._is_playing(now_ms()):
                self._wait(network)

    def _wait(self, network: ServedNetwork) -> None:
        self._changed.wait(LOOK_S)
        self._check(network)

    def _check(self, network: ServedNetwork) -> None:
        if self._stopping or network.closing or network.closed:
            raise Stopped

    def _take_back(self, device: Device, began: float) -> None:
        device.reserved, device.reserved_end_ms = False, now_ms()
        device.reserved_ms = device.reserved_end_ms - began
        self._notify(device)

    def _is_free(self, device: Device, now: float) -> bool:
        served = [network for network in self._networks if network.runner_on(device) is not None]
        idle = not device.busy and not any(network.scheduler.positions for network in served)
        if idle and now - device.last_end_ms >= QUIET_MS:
            return True
        share = SHARE_OF_PLAY if self._is_playing(now) else SHARE
        return device.reserved_ms <= share * (now - device.reserved_end_ms)

    def _is_playing(self, now: float) -> bool:
        runners = [runner for network in self._networks for runner in network.runners]
        return any(runner.policy.last_arrival_ms(0) > now - PLAYING_MS for runner in runners)
