# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of several evaluators is used, by what is seen of each: the rules, without connections or clocks.

The addresses are in the order in which the user prefers them.

- Among those that can be used, one that is ready comes before one that is degraded, one that may be trusted
  before one that was left a short time ago, and then the order decides.
- One that is degraded is left as soon as another one is ready and may be trusted.
- A preferred one is gone back to when it has been ready for RETURN_SECONDS without a break: what starts, or
  starts again and again, is let alone meanwhile.
- One that was left because it was lost, refused or degraded is trusted when it has been ready for that long
  since, and for twice as long each time that it is left again, MOST_SECONDS at most. So one that comes and
  goes is tried ever more rarely. Having been used for STEADY_SECONDS it begins anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

RETURN_SECONDS = 5.0
MOST_SECONDS = 320.0
STEADY_SECONDS = 600.0

UNKNOWN, UNREACHABLE = "", "unreachable"
"""States besides those that evaluators name: nothing is known yet, and nobody answers."""

READY, DEGRADED = "ready", "degraded"
_RANKS = {READY: 0, DEGRADED: 1}
_UNUSABLE = 2


@dataclass(slots=True)
class Standing:
    """What is known of one evaluator.

    state: as it says, or one of the above. reason: why it is not ready. since: when the state began, in
    seconds of a clock that never goes back. networks: the identities of those that it serves. unfit: why it
    is no choice with these, whatever its state. times_left: how often it was left, since it was steady.
    used_since: when it was gone to last.
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
        """Whether it was never left, or has been ready for long enough since."""
        if not self.times_left:
            return True
        wanted = min(MOST_SECONDS, RETURN_SECONDS * 2 ** min(self.times_left - 1, 16))
        return self.state == READY and now - self.since >= wanted


class Failover:
    """The evaluators and what is known of them. `now` is in seconds of a clock that never goes back."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.standings = {address: Standing(address) for address in addresses}

    def saw(
        self, address: str, state: str, reason: str, now: float, networks: frozenset[str] = frozenset()
    ) -> None:
        """Note an evaluator's state. networks: the identities of those that it serves."""
        standing = self.standings[address]
        if state != standing.state:
            standing.state, standing.since = state, now
        standing.reason = reason
        if networks and networks != standing.networks:
            standing.networks, standing.unfit = networks, ""

    def used(self, address: str, now: float) -> None:
        """Note that an evaluator is used from now on."""
        self.standings[address].used_since = now

    def left(self, address: str, now: float) -> None:
        """Note that an evaluator is used no more because it was lost, refused or degraded. That it has been
        ready counts from now on."""
        standing = self.standings[address]
        steady = standing.used_since and now - standing.used_since >= STEADY_SECONDS
        standing.times_left = 1 if steady else standing.times_left + 1
        standing.since = now

    def usable(self, now: float) -> list[Standing]:
        """Those that can be used, best first."""
        standings = [standing for standing in self.standings.values() if standing.usable]
        return sorted(standings, key=lambda standing: (standing.rank, not standing.trusted(now)))

    def better_than(self, address: str, now: float) -> Standing | None:
        """The evaluator to go to from the one at this address, None to stay. An address that is not among
        these is that of an evaluator of the engine's own: any other is better."""
        here = self.standings.get(address)
        for standing in self.standings.values():
            if standing is here:
                # Those that follow are preferred only while this one is not what it should be.
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
