# SPDX-License-Identifier: GPL-3.0-or-later
"""Trials of batch sizes on idle devices, until the latency curve is complete.

A request that arrives during a trial waits for it. So a device must be idle for IDLE_TIMES the expected time
of the trial. Fewer than one request in IDLE_TIMES then meets a trial, and the 99th percentile of play's
latency does not change. Deep queues try sizes by themselves (scheduling/batching.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from evaluator.backends.common.probe import probe_batch
from evaluator.devices.opening.calibration import BatchTimer
from evaluator.devices.runners import Device, Runner
from evaluator.devices.served_network import ServedNetwork

IDLE_TIMES = 200.0
"""Required idle time of a device, as a multiple of the expected time of a trial."""

LOOK_MS = 1000.0
"""Minimum time until a device that was not idle long enough is checked again."""


def next_trial(
    networks: Sequence[ServedNetwork], device: Device, now: float
) -> tuple[ServedNetwork, Runner, int] | float | None:
    """Return the network, runner and size of an idle device's next trial.

    networks: all served networks. now: milliseconds of now_ms. Returns the time of the next check if it is
    too early, and None if there is nothing to try.
    """
    served = [(network, each) for network in networks for each in network.in_use if each.device is device]
    found: list[tuple[float, ServedNetwork, Runner, int]] = []
    for network, runner in served:
        growth = None if network.closing else runner.model.growth
        size = None if growth is None else growth.idle_trial()
        if size is None or runner.backend.provisional:
            continue
        expected_ms = runner.model.milliseconds(size)
        if expected_ms <= runner.policy.targets.selfplay:
            found.append((expected_ms, network, runner, size))
    if not found:
        return None
    expected_ms, network, runner, size = min(found, key=lambda each: each[0])
    if device.busy or any(each.scheduler.positions for each, _ in served):
        return now + LOOK_MS
    arrivals = [each.policy.last_arrival_ms(rank) for _, _, each, _ in found for rank in range(3)]
    idle_since = max(device.trial_end_ms, device.last_end_ms, device.reserved_end_ms, *arrivals)
    begins_ms = idle_since + IDLE_TIMES * expected_ms
    return (network, runner, size) if begins_ms <= now else max(begins_ms, now + LOOK_MS)


def run_trial(runner: Runner, size: int) -> float:
    """Run a batch of a size and return its milliseconds. Raises what the backend raises."""
    with BatchTimer(runner.backend) as timer:
        return timer.run_ms(probe_batch(size))
