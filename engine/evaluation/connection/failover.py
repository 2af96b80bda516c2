# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules for choosing one of several evaluators by its health, without connections or clocks.

The addresses are in the user's order of preference.

- Usable evaluators are sorted: ready before degraded, trusted before recently failed, then by preference.
- The engine leaves a degraded evaluator as soon as another one is ready and trusted.
- It returns to a preferred one after that was ready for RETURN_SECONDS without a break. So it avoids
  evaluators that start, or restart repeatedly.
- An evaluator that was lost, refused or degraded is trusted after it has been ready for RETURN_SECONDS. Each
  further failure doubles that time, up to MOST_SECONDS. So an unstable one is tried ever more rarely. After
  STEADY_SECONDS of use the time is reset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

RETURN_SECONDS = 5.0
MOST_SECONDS = 320.0
STEADY_SECONDS = 600.0

UNKNOWN, UNREACHABLE = "", "unreachable"
"""States besides those that evaluators report: not checked yet, and no answer."""

READY, DEGRADED = "ready", "degraded"
_RANKS = {READY: 0, DEGRADED: 1}
_UNUSABLE = 2


@dataclass(slots=True)
class Standing:
    """The known state of one evaluator.

    state: reported, or one of the above. reason: why it is not ready. since: start of the state, in seconds
    of a monotonic clock. networks: identities of its networks. unfit: why these rule it out, whatever its
    state. times_left: failures since it was steady. used_since: start of its last use.
    """

    address: str
    state: str = UNKNOWN
    reason: str = ""
    since: float = 0.0
    networks: frozenset[str] = frozenset()
    unfit: str = ""
    times_left: int = 0
    used_since: float = 0.0

    @property
    def rank(self) -> int:
        return _RANKS.get(self.state, _UNUSABLE)

    @property
    def usable(self) -> bool:
        return self.rank < _UNUSABLE and not self.unfit

    def trusted(self, now: float) -> bool:
        """Return True if it never failed, or has been ready for long enough since."""
        if not self.times_left:
            return True
        wanted = min(MOST_SECONDS, RETURN_SECONDS * 2 ** min(self.times_left - 1, 16))
        return self.state == READY and now - self.since >= wanted


class Failover:
    """The evaluators and their states. `now` is in seconds of a monotonic clock."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.standings = {address: Standing(address) for address in addresses}

    def record(
        self, address: str, state: str, reason: str, now: float, networks: frozenset[str] = frozenset()
    ) -> None:
        """Record an evaluator's state. networks: identities of its networks."""
        standing = self.standings[address]
        if state != standing.state:
            standing.state, standing.since = state, now
        standing.reason = reason
        if networks and networks != standing.networks:
            standing.networks, standing.unfit = networks, ""

    def used(self, address: str, now: float) -> None:
        """Record that an evaluator is used from now on."""
        self.standings[address].used_since = now

    def left(self, address: str, now: float) -> None:
        """Record that an evaluator was lost, refused or degraded. Its time in the ready state restarts."""
        standing = self.standings[address]
        steady = standing.used_since and now - standing.used_since >= STEADY_SECONDS
        standing.times_left = 1 if steady else standing.times_left + 1
        standing.since = now

    def usable(self, now: float) -> list[Standing]:
        """Return the usable evaluators, best first."""
        standings = [standing for standing in self.standings.values() if standing.usable]
        return sorted(standings, key=lambda standing: (standing.rank, not standing.trusted(now)))

    def better_than(self, address: str, now: float) -> Standing | None:
        """Return an evaluator to prefer to the one at this address, or None. An unknown address is that of an
        embedded evaluator: all others are better."""
        here = self.standings.get(address)
        for standing in self.standings.values():
            if standing is here:
                # The following ones are better only while this one is not ready.
                if here.rank == 0:
                    return None
                continue
            if standing.state != READY or standing.unfit or not standing.trusted(now):
                continue
            if here is not None and here.rank > 0:
                return standing
            if now - standing.since >= RETURN_SECONDS:
                return standing
        return None
