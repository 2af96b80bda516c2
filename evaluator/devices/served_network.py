# SPDX-License-Identifier: GPL-3.0-or-later
"""A network that takes requests: where it runs, what is queued for it, and what runs it when devices fail.

Plain data with the rules that follow from it; the threads are those of workers.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf

from evaluator.backends.base import Backend
from evaluator.devices.runners import Device, Runner
from evaluator.scheduling.capacity import together
from evaluator.scheduling.requests import Segment
from evaluator.scheduling.scheduler import Scheduler
from protocol.errors import RemoteError
from protocol.messages import Curve, NetworkInfo


@dataclass(slots=True, eq=False)
class Job:
    """Positions on their way through a device.

    tried: the devices that failed on them. error: what is answered if none is left that could. began_ms: when
    the first of them began. due_ms: when they are answered whatever has become of them by then.
    answered: its requests have their part of the answer, or an error. awaited: calls that were given up and
    may still return its answer. began_share_ms: the device's share_ms when it began.
    A job without positions is a probe: a try whether a device that is left out works again. A job with
    positions and no segments tries that batch size on an idle device.
    """

    network: ServedNetwork
    segments: list[Segment]
    positions: int
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
    """A network that takes requests, on one or more devices.

    open_standby: opens a backend to run it while no device does, None if there is none. standby: what that
    returned. standby_opening: that is in flight; standby_late: and takes longer than requests wait for it.
    retries: jobs that a device failed on, for another one. closing: it is being unloaded. closed: it has
    been.
    """

    info: NetworkInfo
    runners: list[Runner]
    open_standby: Callable[[], Runner] | None = None
    scheduler: Scheduler = field(default_factory=Scheduler)
    retries: list[Job] = field(default_factory=list)
    closing: bool = False
    closed: bool = False
    standby: Runner | None = None
    standby_opening: bool = False
    standby_late: bool = False
    _described: tuple[object, tuple[int, Curve]] | None = None
    """What was last told of the devices together, and of which state of them."""

    @property
    def idle(self) -> bool:
        """Whether nothing is queued or running."""
        running = any(runner.running for runner in self.all_runners)
        return not len(self.scheduler) and not self.retries and not running

    @property
    def all_runners(self) -> list[Runner]:
        """What runs the network, the standby last if it is open."""
        return self.runners if self.standby is None else [*self.runners, self.standby]

    @property
    def in_use(self) -> list[Runner]:
        """What is given the network's requests: all devices that work, or the standby while none does."""
        working = [runner for runner in self.runners if runner.in_use]
        if not working and self.standby is not None and self.standby.in_use:
            return [self.standby]
        return working

    @property
    def hopeless(self) -> bool:
        """Whether no request could be answered: no device works, and no standby does or soon will."""
        return not self.in_use and not (self.standby_opening and not self.standby_late)

    def runner_on(self, device: Device) -> Runner | None:
        """What runs the network on a device: None while that device is left out, or a standby not needed."""
        return next((runner for runner in self.in_use if runner.device is device), None)

    def next_to_try(self, job: Job) -> Runner | None:
        """Where a job that failed goes: to a device in use that has not failed on it, else the standby."""
        for runner in self.all_runners:
            if runner.in_use and runner.device not in job.tried:
                return runner
        return None

    def current_info(self) -> NetworkInfo:
        """The network's description as it runs at present, on all devices that work together, with the curve
        as corrected since it was measured. The recommended batch does not follow other work on the machine:
        see LatencyModel.knee."""
        runners = self.in_use or self.runners[:1]
        state = tuple((id(runner), runner.model, runner.model.version) for runner in runners)
        if self._described is None or self._described[0] != state:
            self._described = (state, together([runner.model for runner in runners]))
        batch, curve = self._described[1]
        return replace(
            self.info,
            backend=" + ".join(dict.fromkeys(runner.backend.name for runner in runners)),
            device=_listed([runner.backend.device for runner in runners]),
            devices=len(runners),
            recommended_batch=batch,
            curve=curve,
        )

    def give_up(self) -> list[Backend]:
        """Serve no more; returns the backends to close. A caller that is inside another one, because its
        call hangs or is a probe, closes that when it returns."""
        self.closed = True
        for runner in self.all_runners:
            runner.save_curve()
        return [runner.backend for runner in self.all_runners if runner.free]

    def close_left(self, runner: Runner) -> None:
        """Close a backend of a network that is served no more, if nobody is inside it. To be called whenever
        somebody has come out."""
        if self.closed and runner.free:
            runner.backend.close()

    def close(self) -> None:
        """Free the devices of a network that no thread runs."""
        for backend in self.give_up():
            backend.close()


def _listed(names: list[str]) -> str:
    """Names with how often each occurs: "2 x NVIDIA H200 + CPU"."""
    counts = Counter(names)
    return " + ".join(name if count == 1 else f"{count} x {name}" for name, count in counts.items())
