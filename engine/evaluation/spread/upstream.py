# SPDX-License-Identifier: GPL-3.0-or-later
"""One of the evaluators that share a pool's requests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

from engine.evaluation.errors import EvaluatorRefusalError, NoEvaluatorError
from engine.evaluation.link.link import EvaluatorLink, changed_network, equal_network, served_network
from engine.evaluation.link.process import EvaluatorSettings, NetworkKey
from engine.evaluation.link.requests import Requests
from engine.evaluation.spread.estimate import SpeedEstimate
from engine.evaluation.spread.joint_request import JointRequest
from protocol.errors import Draining, EvaluatorFailure, EvaluatorLost, Overloaded

if TYPE_CHECKING:
    from protocol.batch import PositionBatch
    from protocol.client import Completed, EvaluatorClient
    from protocol.wire.messages import NetworkInfo, Priority

RETRY_SECONDS = 2.0
"""Time between two attempts to reach a failed evaluator while others do its work."""


@dataclass(slots=True)
class Served:
    """A network at an evaluator. info: its description there. unfit: why it must not be used. moved: the
    evaluator replaced the common network by it. identity: NetworkInfo.identity."""

    info: NetworkInfo
    speed: SpeedEstimate
    unfit: str = ""
    moved: bool = False
    identity: str = field(init=False)

    def __post_init__(self) -> None:
        self.identity = self.info.identity


@dataclass(slots=True, eq=False)
class Offer:
    """An evaluator that serves a network. network: its description. identity: NetworkInfo.identity.
    max_batch: positions of its largest request."""

    upstream: Upstream
    network: NetworkInfo
    identity: str
    max_batch: int


class Upstream(Requests[JointRequest[Any]]):
    """A link to one evaluator and its requests in flight. Other threads may only use `link`."""

    def __init__(
        self,
        settings: EvaluatorSettings,
        log: Callable[[str], None],
        priority: Priority,
        interrupt: int | None,
        send_again: Callable[[JointRequest[Any]], object],
        agreed: dict[NetworkKey, NetworkInfo],
        *,
        alone: bool,
        fallback: bool = False,
    ) -> None:
        """interrupt: file descriptor; `receive` returns when it becomes readable. send_again: see Requests.
        agreed: the networks that all evaluators of a pool must serve: the first one found for each name in
        the options, until no evaluator has it any more. alone: there is no other upstream, so a failure here
        fails the searches. fallback: see EvaluatorLink."""
        self.failure: NoEvaluatorError | None = None
        """Why the link gave up; None once it is connected again."""
        self._log = log if alone else self._log_once
        self._log_always = log
        self._said = ""
        self._interrupt = interrupt
        self._agreed = agreed
        self._alone = alone
        self._retry_at = 0.0
        self._noticed: EvaluatorClient | None = None
        """The connection of `_served`, as of its notice number `_notices`."""
        self._notices = 0
        self._served: dict[NetworkKey, Served] = {}
        self._last_served: dict[NetworkKey, NetworkInfo] = {}
        self.link = EvaluatorLink(settings, self._log, fallback=fallback, prepare=self._prepare)
        super().__init__(self.link, priority, send_again)

    def network(self, key: NetworkKey, *, look: bool = True) -> Served | None:
        """Return the network of that name, loaded if necessary; None if the evaluator cannot be used now.

        look: first read the notices of changes, which otherwise answers bring. If there is no other upstream,
        raises NoEvaluatorError after the last failure, or if it cannot serve the network.
        """
        if not look and (served := self.current(key)) is not None:
            return served
        client = self._connect()
        if client is None:
            return None
        served = self._served.get(key)
        if served is None:
            try:
                info = self._look_up(client, key)
            except (EvaluatorLost, Draining) as error:
                self.lost(str(error), refused=isinstance(error, Draining))
                return None
            except EvaluatorFailure as error:
                served = self._left_out(client, key, error)
            else:
                served = self._newly_served(key, info)
            self._served[key] = served
        return None if served.unfit else served

    def networks(self) -> tuple[NetworkInfo, ...] | None:
        """Return the evaluator's current networks; None while there is no connection."""
        try:
            client = self._connect()
            if client is not None:
                client.take_notices()
                return client.networks
        except (NoEvaluatorError, EvaluatorLost):  # The next caller gets the error.
            pass
        return None

    def has_moved(self, key: NetworkKey) -> bool:
        """Return True if the evaluator is excluded because it has announced another network."""
        return self.client is not None and key in self._served and self._served[key].moved

    def retry_network(self, key: NetworkKey) -> None:
        """Reset the exclusion of the evaluator's network."""
        self._served.pop(key, None)
        self.failure = None

    def in_flight(self, key: NetworkKey) -> int:
        """Return the positions in flight for a network."""
        return sum(request.size for request in self.sent.values() if request.network == key)

    def rate(self, key: NetworkKey) -> float:
        """Return a network's positions per second, less the capacity that other clients use."""
        speed = self._served[key].speed
        return speed.rate / speed.slowness(perf_counter())

    def finish_ms(self, key: NetworkKey, positions: int) -> float:
        """Return the expected latency in milliseconds of a request sent now."""
        return self._expected_ms(key, positions) * self._served[key].speed.slowness(perf_counter())

    def submit(self, batch: PositionBatch, request: JointRequest[Any]) -> bool:
        """Send a request; return False if the evaluator is lost. `receive` returns the answer, unless the
        request is sent again. Raises PipelineError if it is refused."""
        served = self._served[request.network]
        if not self._alone:  # Otherwise there is no choice for which a speed would be needed.
            request.sent_at = perf_counter()
            request.expected_ms = self._expected_ms(request.network, request.size)
            request.share_ms = served.speed.share_ms(request.size)
        return self.send(batch, request, served.info.name, request.target_ms)

    def current(self, key: NetworkKey) -> Served | None:
        """Return a network as requests may use it without another look at the connection; None if `network`
        must look first."""
        client = self._noticed
        if (
            client is None
            or client is not self.link.client
            or client is not self.client
            or client.notices != self._notices
        ):
            return None
        served = self._served.get(key)
        return None if served is None or served.unfit else served

    def receive(self, timeout_ms: float | None) -> tuple[JointRequest[Any] | None, Completed] | None:
        """Return the next answer; see Requests."""
        answer = super().receive(timeout_ms)
        if answer is None or self._alone:
            return answer
        request, completed = answer
        now = perf_counter()
        if request is not None and request.network in self._served:
            took_ms = 1000 * (now - request.sent_at)
            self._served[request.network].speed.learn(request.expected_ms, took_ms, now)
        elif isinstance(completed.error, Overloaded):
            for served in self._served.values():
                served.speed.refused(now)
        return answer

    # -- the evaluator -----------------------------------------------------------------------------------

    def _connect(self) -> EvaluatorClient | None:
        try:
            self.link.wait(0.0)
        except NoEvaluatorError as error:
            if self._alone:
                raise
            self._give_up(error)
            return None
        client = self.connect()
        if client is not None and client is not self._noticed:
            self._noticed = client
            self._served.clear()
            self.failure = None
            self._notices = client.notices
            if self._interrupt is not None:
                client.interrupt_by(self._interrupt)
        if client is not None and not client.in_flight:  # Otherwise `receive` reads them.
            with suppress(EvaluatorLost):  # The next sender gets the error.
                client.take_notices()
        if client is not None and client.notices != self._notices:
            self._notices = client.notices
            self._follow(client)
        return client

    def _follow(self, client: EvaluatorClient) -> None:
        """Adopt the networks that the evaluator has announced."""
        self.failure = None
        for key, served in list(self._served.items()):
            own = key == self.link.settings.network
            info = client.network if own else client.following(served.info.name)
            if served.unfit and not served.moved:
                self.retry_network(key)
            elif info.identity == served.info.identity:
                served.info = info
            else:
                self._served[key] = self._newly_served(key, info)
            agreed = self._agreed.get(key)
            if agreed is not None and key in self._served and agreed.identity != info.identity:
                self._served[key].moved = True
                self._served[key].unfit = f"the evaluator at {client.address} has another network now"
                self.failure = EvaluatorRefusalError(self._served[key].unfit)

    def _newly_served(self, key: NetworkKey, info: NetworkInfo) -> Served:
        """Return the record of a network that requests begin to use, and log that it is another one."""
        before, self._last_served[key] = self._last_served.get(key), info
        if before is not None and before.identity != info.identity:
            if key == self.link.settings.network:
                self.link.follow(info)
            self._log_once(changed_network(before, info))
        return Served(info, SpeedEstimate(info.curve))

    def _give_up(self, error: NoEvaluatorError) -> None:
        """Record that the link gave up, and let it retry after a while, unless the evaluator refuses."""
        now = perf_counter()
        if self.failure is None:
            self._retry_at = now + RETRY_SECONDS
            if isinstance(error, EvaluatorRefusalError):
                self._log(f"{error}; it is not used")
        elif now >= self._retry_at:
            self._retry_at = now + RETRY_SECONDS
            self.link.start()
        self.failure = error

    def _look_up(self, client: EvaluatorClient, key: NetworkKey) -> NetworkInfo:
        """Return the evaluator's description of a network. Raises EvaluatorFailure."""
        agreed = self._agreed.get(key)
        if agreed is not None:
            return equal_network(client, key, agreed)
        own = key == self.link.settings.network
        network = client.network if own else served_network(client, key)
        if not self._alone:  # A single evaluator may serve another network after a restart.
            self._agreed[key] = network
        return network

    def _left_out(self, client: EvaluatorClient, key: NetworkKey, error: EvaluatorFailure) -> Served:
        if self._alone:
            raise NoEvaluatorError(f"the evaluator cannot serve {key[0]!r}: {error}") from None
        text = f"the evaluator at {client.address} cannot serve the network: {error}"
        self.failure = EvaluatorRefusalError(text)
        self._log(f"{text}; it is not used")
        return Served(client.network, SpeedEstimate(()), unfit=text)

    def _prepare(self, client: EvaluatorClient) -> None:
        """Let a new connection's evaluator load the common networks. Runs in the link's thread, so that the
        pool does not wait."""
        for key, agreed in list(self._agreed.items()):
            with suppress(EvaluatorFailure):  # Callers that request the network get the error.
                equal_network(client, key, agreed)

    def _expected_ms(self, key: NetworkKey, positions: int) -> float:
        before = sum(request.share_ms for request in self.sent.values())
        return before + self._served[key].speed.curve_ms(positions)

    def _log_once(self, text: str) -> None:
        """Log a text unless it is the last one: an unavailable evaluator is retried repeatedly."""
        if text != self._said:
            self._said = text
            self._log_always(text)
