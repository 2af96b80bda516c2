# SPDX-License-Identifier: GPL-3.0-or-later
"""A served network: its devices, its queue, and its standby for device failures.

Plain data and the rules on it; workers.py has the threads.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from math import inf

from evaluator.backends.common.base import Backend
from evaluator.devices.runners import Device, Runner
from evaluator.scheduling.placement import together
from evaluator.scheduling.requests import Segment
from evaluator.scheduling.scheduler import Scheduler
from protocol.errors import RemoteError
from protocol.wire.messages import Curve, NetworkInfo


@dataclass(slots=True, eq=False)
class Job:
    """Positions that a device evaluates together.

    tried: devices that failed on them. error: error to answer if no device is left. began_ms: start of the
    first attempt. due_ms: time at which they are answered in any case. answered: its requests have this part
    of the answer, or an error. awaited: given-up calls that may still return its answer. began_share_ms: the
    device's share_ms at the start. alone: no other batch of its network may run meanwhile.

    A job without positions is a probe, which tests an excluded device. A job with positions but no segments
    is a trial of that batch size on an idle device.
    """

    network: ServedNetwork
    segments: list[Segment]
    positions: int
    alone: bool = False
    tried: list[Device] = field(default_factory=list)
    error: RemoteError | None = None
    began_ms: float | None = None
    due_ms: float = inf
    began_share_ms: float = 0.0
    answered: bool = False
    awaited: int = 0

    @property
    def is_probe(self) -> bool:
        return not self.positions

    @property
    def is_trial(self) -> bool:
        return self.positions > 0 and not self.segments


@dataclass(slots=True, eq=False)
class ServedNetwork:
    """A network that accepts requests, on one or more devices.

    open_standby: opens a backend for when no device works; None without one. flop: floating-point operations
    of a position. standby: the opened standby. standby_opening: True while it opens. standby_late: True if it
    opens longer than requests wait. retries: jobs that failed on a device, for another one. closing: True
    while it is being unloaded. closed: True after that. all_runners: the runners, with the standby last if it
    is open. in_use: the runners that get requests: all working devices, or the standby if there are none.
    whole: all devices work, and there is no standby. leases: its only device may lease its buffers
    (Backend.lease_buffers).
    """

    info: NetworkInfo
    runners: list[Runner]
    open_standby: Callable[[], Runner] | None = None
    flop: int = 1
    scheduler: Scheduler = field(default_factory=Scheduler)
    retries: list[Job] = field(default_factory=list)
    closing: bool = False
    closed: bool = False
    standby: Runner | None = None
    standby_opening: bool = False
    standby_late: bool = False
    all_runners: list[Runner] = field(init=False)
    in_use: list[Runner] = field(init=False)
    whole: bool = field(init=False)
    leases: bool = field(init=False)
    _described: tuple[object, tuple[int, Curve]] | None = None
    """The last description of all devices together, and the state from which it was made."""

    def __post_init__(self) -> None:
        self._choose()

    def _choose(self) -> None:
        """Set the runners that get requests, after each change of a device."""
        self.all_runners = self.runners if self.standby is None else [*self.runners, self.standby]
        working = [runner for runner in self.all_runners if runner.in_use]
        self.in_use = [runner for runner in working if runner is not self.standby] or working
        self.whole = working == self.runners
        kinds = [type(runner.backend) for runner in self.in_use]
        self.leases = len(kinds) == 1 and kinds[0].lease_buffers is not Backend.lease_buffers

    def leave_out(self, runner: Runner, reason: str, probe_at_ms: float) -> None:
        """Exclude a runner until `take_back`. reason: the rest of a sentence about the device."""
        if runner.in_use:
            runner.out_since = time.time()
        runner.out_reason = reason
        runner.probe_at_ms = probe_at_ms
        self._choose()

    def take_back(self, runner: Runner) -> None:
        """Use an excluded runner again."""
        runner.failures = 0
        runner.out_reason = ""
        self._choose()

    def use_standby(self, standby: Runner | None) -> None:
        """Use a standby that has been opened; None if it could not be."""
        self.standby = standby
        self._choose()

    def replied(self, client: Hashable, now: float) -> None:
        """Note that a client is about to get an answer."""
        for runner in self.all_runners:
            runner.policy.replied(client, now)

    @property
    def idle(self) -> bool:
        """True if nothing is queued or running."""
        running = any(runner.running for runner in self.all_runners)
        return not len(self.scheduler) and not self.retries and not running

    @property
    def unavailable(self) -> bool:
        """True if no request can be answered: no device works, and no standby works or is opening."""
        return not self.in_use and not (self.standby_opening and not self.standby_late)

    def runner_on(self, device: Device) -> Runner | None:
        """Return the runner on a device; None if that is excluded, or a standby that is not needed."""
        return next((runner for runner in self.in_use if runner.device is device), None)

    def next_to_try(self, job: Job) -> Runner | None:
        """Return the runner for a failed job: a device in use that has not tried it, else the standby."""
        for runner in self.all_runners:
            if runner.in_use and runner.device not in job.tried:
                return runner
        return None

    def current_info(self) -> NetworkInfo:
        """Return the current description over all working devices, with the corrected latency curve. The
        recommended batch does not follow other work on the machine: see LatencyModel.knee."""
        runners = self.in_use or self.runners[:1]
        state = tuple((id(runner), runner.model, runner.model.version) for runner in runners)
        if self._described is None or self._described[0] != state:
            self._described = (state, together([runner.model for runner in runners]))
        batch, curve = self._described[1]
        return replace(
            self.info,
            backend=" + ".join(dict.fromkeys(runner.backend.name for runner in runners)),
            device=_listed([runner.backend.device for runner in runners]),
            precision=" + ".join(dict.fromkeys(runner.backend.precision for runner in runners)),
            devices=len(runners),
            recommended_batch=batch,
            curve=curve,
        )

    def give_up(self) -> list[Backend]:
        """Stop serving, and return the backends to close now. Backends with a call inside (hanging or a
        probe) are closed by that call's thread."""
        self.closed = True
        for runner in self.all_runners:
            runner.save_curve()
        return [runner.backend for runner in self.all_runners if runner.free]

    def close_left(self, runner: Runner) -> None:
        """Close a backend of an unloaded network if no call is inside it. Call it whenever a call returns."""
        if self.closed and runner.free:
            runner.backend.close()

    def close(self) -> None:
        """Close all backends of a network that no thread runs."""
        for backend in self.give_up():
            backend.close()


def _listed(names: list[str]) -> str:
    """Return the names with their counts: "2 x NVIDIA H200 + CPU"."""
    counts = Counter(names)
    return " + ".join(name if count == 1 else f"{count} x {name}" for name, count in counts.items())
