"""Where a service is in its life: loading, ready, degraded or draining, since when, and why."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from evaluator.devices.failover import Trouble

Name: TypeAlias = Literal["loading", "ready", "degraded", "draining"]

STATES: tuple[Name, ...] = ("loading", "ready", "degraded", "draining")


@dataclass(frozen=True, slots=True)
class Condition:
    """A moment of a service's life.

    state: by name. since: when that began, in seconds of the Unix epoch. reason: why it is not ready, in
    words, empty when it is. ready: evaluations are taken and can be run; true of a degraded service whose
    networks still run somewhere.
    """

    state: Name
    since: float
    reason: str
    ready: bool


class LifeCycle:
    """Belongs to the I/O thread, but for `condition`, `end` and `ending`, which are for any thread and for
    signal handlers."""

    def __init__(self) -> None:
        self._began = time.time()
        self._loaded: float | None = None
        self._draining: tuple[float, str] | None = None
        self.ending = False
        """Whether the service is about to end."""

    @property
    def loaded(self) -> bool:
        """Whether the first networks are there."""
        return self._loaded is not None

    @property
    def draining(self) -> bool:
        """Whether the service takes nothing new."""
        return self._draining is not None

    def end(self) -> None:
        """The service ends as soon as it can."""
        self.ending = True

    def load(self) -> None:
        """The first networks are there."""
        self._loaded = time.time()

    def drain(self, reason: str) -> bool:
        """The service takes nothing new from now on; False if that was so before."""
        if self._draining is not None:
            return False
        self._draining = time.time(), reason
        return True

    def condition(
        self, troubles: Sequence[Trouble], usable: bool, well_since: float, loading: str = ""
    ) -> Condition:
        """The present moment. troubles: devices left out. usable: whether every network can be evaluated
        nevertheless. well_since: since when no device has been left out. loading: what is being loaded."""
        draining = self._draining
        if draining is not None:
            return Condition("draining", *draining, ready=False)
        if self._loaded is None:
            what = f": {loading}" if loading else ""
            return Condition("loading", self._began, f"the networks are being loaded{what}", ready=False)
        if troubles:
            since = min(trouble.since for trouble in troubles)
            return Condition("degraded", since, "; ".join(trouble.reason for trouble in troubles), usable)
        return Condition("ready", max(self._loaded, well_since), "", ready=True)
