# SPDX-License-Identifier: GPL-3.0-or-later
"""The evaluators whose addresses the user gave: which of them is used, by what health checks say of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from engine.evaluation.connection.connecting import connect
from engine.evaluation.connection.failover import READY, UNKNOWN, UNREACHABLE, Failover, Standing
from engine.evaluation.connection.health import HealthCheck
from engine.evaluation.connection.process import EvaluatorSettings
from engine.evaluation.errors import EvaluatorDrainingError, EvaluatorRefusalError, NoEvaluatorError

if TYPE_CHECKING:
    from protocol.client import EvaluatorClient
    from protocol.messages import NetworkInfo

FIRST_LOOK_SECONDS = 1.0
"""How long a preferred evaluator may take to say how it is before another one is taken."""


class ConfiguredEvaluators:
    """One address, or several that stand in for each other. May be used from any thread.

    Those of several must serve the network of the one that was connected first, by its content.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        settings: EvaluatorSettings,
        log: Callable[[str], None],
        on_news: Callable[[], None],
    ) -> None:
        """addresses: those of the settings. on_news: called after each look at one of several, from another
        thread."""
        self._addresses = addresses
        self._settings = settings
        self._log = log
        self._on_news = on_news
        self._failover = Failover(addresses)
        self._network: NetworkInfo | None = None
        self._max_batch = 0
        self._looked = threading.Condition()
        self._health = HealthCheck(addresses, self._saw, keys=settings.keys) if len(addresses) > 1 else None

    def connect(self) -> tuple[EvaluatorClient, str]:
        """Connect to the best one; returns its address, too. Raises as `connecting.connect`."""
        if self._health is None:
            return connect(self._addresses[0], self._settings), self._addresses[0]
        self._health.start()
        with self._looked:
            self._looked.wait_for(self._looked_enough, FIRST_LOOK_SECONDS)
            usable = self._failover.usable(time.monotonic())
        for standing in usable:
            try:
                return self.connect_to(standing.address), standing.address
            except NoEvaluatorError:
                continue  # It is in the standing.
        raise self._nobody()

    def connect_to(self, address: str) -> EvaluatorClient:
        """Connect to one of several. Raises as `connect`; why is remembered."""
        try:
            client = connect(address, self._settings, self._network)
            self._check_size(client)
        except EvaluatorRefusalError as error:
            with self._looked:
                known = self._failover.standings[address].unfit
                self._failover.standings[address].unfit = str(error)
            if str(error) != known:
                self._log(f"{error}; it is left out")
            raise
        except NoEvaluatorError as error:
            draining = isinstance(error, EvaluatorDrainingError)
            self._note(address, "draining" if draining else UNREACHABLE, str(error))
            raise
        with self._looked:
            self._network = self._network or client.network
            self._failover.used(address, time.monotonic())
            # A search that goes on elsewhere sends what it has collected as it is.
            self._max_batch = client.max_batch = min(client.max_batch, self._max_batch or client.max_batch)
        return client

    def follow(self, network: NetworkInfo) -> None:
        """Have another network decide which evaluators can be used: the one in use serves it now."""
        with self._looked:
            if self._network is not None:
                self._network = network
                for standing in self._failover.standings.values():
                    standing.unfit = ""

    def left(self, address: str, reason: str = "") -> None:
        """Note that an evaluator is left; reason: if it is lost, and not to be used until it has been seen to
        be ready. Addresses that were not given are ignored."""
        if self._health is None or address not in self._failover.standings:
            return
        if reason:
            self._note(address, UNREACHABLE, reason)
        with self._looked:
            if self._failover.standings[address].state != READY:
                self._failover.left(address, time.monotonic())

    def has_usable(self) -> bool:
        """Whether one of several can be used."""
        with self._looked:
            return bool(self._failover.usable(time.monotonic()))

    def has_alternative(self) -> bool:
        """Whether there is one to go to that has not failed a short time ago."""
        now = time.monotonic()
        with self._looked:
            return any(standing.trusted(now) for standing in self._failover.usable(now))

    def better_than(self, address: str) -> str | None:
        """The address of the evaluator to go to from the one at this address, None to stay. "": an evaluator
        of the engine's own."""
        with self._looked:
            better = self._failover.better_than(address, time.monotonic())
        return None if better is None else better.address

    def why(self, address: str) -> str:
        """Why those that are preferred to this one are not used; empty if there is none."""
        with self._looked:
            preferred = list(
                takewhile(lambda each: each.address != address, self._failover.standings.values())
            )
            return ", as " + "; ".join(map(_why_not, preferred)) if preferred and address else ""

    def close(self) -> None:
        """Look at them no more."""
        if self._health is not None:
            self._health.close()

    def _check_size(self, client: EvaluatorClient) -> None:
        """Close a connection that does not take what the others' requests have, and raise
        EvaluatorRefusalError."""
        if client.max_batch < self._max_batch:
            client.close()
            raise EvaluatorRefusalError(
                f"the evaluator at {client.address} takes {client.max_batch} positions in one request, and "
                f"the others take {self._max_batch}: start it with --max-request {self._max_batch}"
            )

    def _note(self, address: str, state: str, reason: str) -> None:
        with self._looked:
            self._failover.saw(address, state, reason, time.monotonic())

    def _saw(self, address: str, state: str, reason: str, networks: frozenset[str]) -> None:
        with self._looked:
            self._failover.saw(address, state, reason, time.monotonic(), networks)
            self._looked.notify_all()
        self._on_news()

    def _looked_enough(self) -> bool:
        """Whether the best one is known: all that are preferred to it have been looked at."""
        for standing in self._failover.standings.values():
            if standing.state == UNKNOWN:
                return False
            if standing.usable and standing.rank == 0:
                return True
        return True

    def _nobody(self) -> NoEvaluatorError:
        """Why none of several can be used, as an error."""
        with self._looked:
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
