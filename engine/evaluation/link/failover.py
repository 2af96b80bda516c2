# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluators at addresses given by the user: the rules for choosing one by its health, and connections to it.

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

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from engine.evaluation.errors import EvaluatorDrainingError, EvaluatorRefusalError, NoEvaluatorError
from engine.evaluation.link.health import DEGRADED, READY, UNKNOWN, UNREACHABLE, HealthCheck

if TYPE_CHECKING:
    from protocol.client import EvaluatorClient
    from protocol.wire.messages import NetworkInfo

RETURN_SECONDS = 5.0
MOST_SECONDS = 320.0
STEADY_SECONDS = 600.0

FIRST_CHECK_SECONDS = 1.0
"""Longest wait for the health of a preferred evaluator before another one is used."""

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


class ConfiguredEvaluators:
    """Evaluators at one address, or at several for failover. Thread-safe.

    All must serve the network that the first connected one serves, by its content.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        connect: Callable[..., EvaluatorClient],
        keys: str,
        log: Callable[[str], None],
        on_check: Callable[[], None],
    ) -> None:
        """connect: see link.connect. keys: their folder. on_check: called from another thread after each
        health check."""
        self._addresses = addresses
        self._connect = connect
        self._log = log
        self._on_check = on_check
        self._failover = Failover(addresses)
        self._network: NetworkInfo | None = None
        self._max_batch = 0
        self._checked = threading.Condition()
        self._health = HealthCheck(addresses, self._record, keys=keys) if len(addresses) > 1 else None

    def connect(self) -> tuple[EvaluatorClient, str]:
        """Connect to the best evaluator. Return the connection and the address. Raises as `connect`."""
        if self._health is None:
            return self._connect(self._addresses[0]), self._addresses[0]
        self._health.start()
        with self._checked:
            self._checked.wait_for(self._best_is_known, FIRST_CHECK_SECONDS)
            usable = self._failover.usable(time.perf_counter())
        for standing in usable:
            try:
                return self.connect_to(standing.address), standing.address
            except NoEvaluatorError:
                continue  # The standing records the error.
        raise self._none_usable()

    def connect_to(self, address: str) -> EvaluatorClient:
        """Connect to one of several evaluators, and record a failure. Raises as `connect`."""
        try:
            client = self._connect(address, same_as=self._network)
            self._check_size(client)
        except EvaluatorRefusalError as error:
            with self._checked:
                known = self._failover.standings[address].unfit
                self._failover.standings[address].unfit = str(error)
            if str(error) != known:
                self._log(f"{error}; it is not used")
            raise
        except NoEvaluatorError as error:
            draining = isinstance(error, EvaluatorDrainingError)
            self._note(address, "draining" if draining else UNREACHABLE, str(error))
            raise
        with self._checked:
            self._network = self._network or client.network
            self._failover.used(address, time.perf_counter())
            # After a failover, a search sends its collected batches unchanged.
            self._max_batch = client.max_batch = min(client.max_batch, self._max_batch or client.max_batch)
        return client

    def follow(self, network: NetworkInfo) -> None:
        """Require another network of all evaluators, because the one in use serves it now."""
        with self._checked:
            if self._network is not None:
                self._network = network
                for standing in self._failover.standings.values():
                    standing.unfit = ""

    def left(self, address: str, reason: str = "") -> None:
        """Record that an evaluator is no longer used. reason: it is lost, and must be seen ready before it is
        used again. Unknown addresses are ignored."""
        if self._health is None or address not in self._failover.standings:
            return
        if reason:
            self._note(address, UNREACHABLE, reason)
        with self._checked:
            if self._failover.standings[address].state != READY:
                self._failover.left(address, time.perf_counter())

    def has_usable(self) -> bool:
        """Return True if one of several evaluators is usable."""
        with self._checked:
            return bool(self._failover.usable(time.perf_counter()))

    def has_alternative(self) -> bool:
        """Return True if a usable evaluator has not failed recently."""
        now = time.perf_counter()
        with self._checked:
            return any(standing.trusted(now) for standing in self._failover.usable(now))

    def better_than(self, address: str) -> str | None:
        """Return the address of a better evaluator, or None. address: the current one; "" if embedded."""
        with self._checked:
            better = self._failover.better_than(address, time.perf_counter())
        return None if better is None else better.address

    def why(self, address: str) -> str:
        """Return why the evaluators preferred to this one are not used; empty if there are none."""
        with self._checked:
            preferred = list(
                takewhile(lambda each: each.address != address, self._failover.standings.values())
            )
            return ", as " + "; ".join(map(_why_not, preferred)) if preferred and address else ""

    def close(self) -> None:
        """Stop the health checks."""
        if self._health is not None:
            self._health.close()

    def _check_size(self, client: EvaluatorClient) -> None:
        """Close a connection whose largest request is smaller than the others', and raise
        EvaluatorRefusalError."""
        if client.max_batch < self._max_batch:
            client.close()
            raise EvaluatorRefusalError(
                f"the evaluator at {client.address} takes {client.max_batch} positions in one request, and "
                f"the others take {self._max_batch}: start it with --max-request {self._max_batch}"
            )

    def _note(self, address: str, state: str, reason: str) -> None:
        with self._checked:
            self._failover.record(address, state, reason, time.perf_counter())

    def _record(self, address: str, state: str, reason: str, networks: frozenset[str]) -> None:
        with self._checked:
            self._failover.record(address, state, reason, time.perf_counter(), networks)
            self._checked.notify_all()
        self._on_check()

    def _best_is_known(self) -> bool:
        """Return True if the best evaluator is known, because all preferred ones were checked."""
        for standing in self._failover.standings.values():
            if standing.state == UNKNOWN:
                return False
            if standing.usable and standing.rank == 0:
                return True
        return True

    def _none_usable(self) -> NoEvaluatorError:
        """Return the error that no evaluator is usable."""
        with self._checked:
            standings = list(self._failover.standings.values())
        reasons = "; ".join(_why_not(standing) for standing in standings)
        if all(standing.unfit for standing in standings):
            return EvaluatorRefusalError(reasons)
        states = {standing.state for standing in standings if not standing.unfit}
        if "draining" in states and "loading" not in states:
            return EvaluatorDrainingError(reasons)
        return NoEvaluatorError(reasons)


def _why_not(standing: Standing) -> str:
    if standing.unfit or standing.state == UNREACHABLE:
        return standing.unfit or standing.reason
    if standing.state == READY:
        return f"the evaluator at {standing.address} was left a moment ago"
    if standing.state == UNKNOWN:
        return f"the evaluator at {standing.address} does not answer"
    return f"the evaluator at {standing.address} is {standing.state}" + (
        f" ({standing.reason})" if standing.reason else ""
    )
