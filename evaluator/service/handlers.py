"""What each message of a client does. Those that change the service for everybody, or tell about everybody,
are handed on (administration.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

from evaluator._core import is_sound
from evaluator.devices.dispatcher import Dispatcher
from evaluator.devices.runners import now_ms
from evaluator.devices.served_network import ServedNetwork
from evaluator.metrics import Metrics, State
from evaluator.scheduling.requests import Request
from evaluator.service import administration
from evaluator.service.administration import Administration
from evaluator.service.connections.transport import Arrived, Sockets
from evaluator.service.draining import ELSEWHERE
from evaluator.service.lifecycle import LifeCycle
from evaluator.service.membership import Membership
from evaluator.service.networks import ServedNetworks
from evaluator.service.replies import Replies
from evaluator.service.sessions import Session, Sessions
from protocol import messages
from protocol.batch import PositionBatch
from protocol.codec import check_batch, decode_request
from protocol.compression import offered
from protocol.errors import DeadlineExceeded, Draining, DuplicateId, NotReady, UnsupportedVersion
from protocol.host.printing import printable
from protocol.host.version import __version__
from protocol.messages import NETWORKS, PRIORITIES, SUPPORTED_VERSIONS

SERVER = f"wavefront-evaluator {__version__}"


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """What clients learn of the service. instance: names the run of it. max_request: most positions in
    one request. state: what it is at the moment."""

    instance: str
    max_request: int
    state: Callable[[], State]


class Handlers:
    """Belongs to the I/O thread."""

    def __init__(
        self,
        info: ServiceInfo,
        metrics: Metrics,
        life: LifeCycle,
        sockets: Sockets,
        sessions: Sessions,
        membership: Membership,
        networks: ServedNetworks,
        dispatcher: Dispatcher,
        replies: Replies,
        administration: Administration,
        saw: Callable[[Session, ServedNetwork], None],
    ) -> None:
        """saw: hears of every evaluation that is asked for."""
        self._info = info
        self._metrics = metrics
        self._life = life
        self._sockets = sockets
        self._sessions = sessions
        self._membership = membership
        self._networks = networks
        self._dispatcher = dispatcher
        self._replies = replies
        self._administration = administration
        self._saw = saw
        self._compression = offered()

    def handle(self, arrived: Arrived) -> None:
        """Do what a message asks for. Raises RemoteError."""
        message = decode_request(arrived.frames, self._info.max_request, _check)
        handler = _HANDLERS.get(type(message))
        session = self._sessions.of(arrived.client)
        if session is None:
            session = self._membership.begin(arrived, of_the_gone=handler is None)
        if handler is None:
            assert isinstance(message, administration.Request)
            # Not the session's: ZeroMQ lets the next connection have the identity of one that has ended.
            self._administration.handle(arrived.client, message, self._sockets.user(arrived))
        elif session is not None:
            handler(self, session, message)

    def welcome_waiting(self) -> None:
        """Answer the hellos that came before the first networks."""
        for session, hello in self._sessions.take_hellos():
            self._welcome(session, hello)

    def announce_networks(self) -> None:
        """Tell the clients that follow the networks that these, or their devices, have changed.

        This binds the default anew.

        Called by the I/O thread as part of the change, so the notice precedes all results of a new network.
        """
        if self._life.draining:
            return
        notice = self._welcome_for(0, follows=True)
        for session in self._sessions:
            if session.follows and session.greeted:
                session.network = self._networks.default
                self._replies.send(session.client, notice)

    def _evaluate(self, session: Session, message: messages.Evaluate) -> None:
        if self._life.draining:
            raise Draining(ELSEWHERE)
        if message.id in session.requests:
            raise DuplicateId(f"another request with id {message.id} is in flight, and goes on")
        network = self._networks.find(message.network, session.network)
        now = now_ms()
        deadline = None if message.deadline_ms is None else now + message.deadline_ms
        if deadline is not None and deadline <= now:
            raise DeadlineExceeded("the deadline had passed on arrival")
        rank = PRIORITIES.index(message.priority)
        named = network.info.content_hash if session.follows else ""
        request = Request(session.client, message.id, message.batch, rank, now, deadline, network=named)
        session.charge(request)
        try:
            self._dispatcher.submit(network, request)
        except BaseException:
            session.release(request)
            raise
        session.requests[message.id] = (request, network)
        self._saw(session, network)

    def _cancel(self, session: Session, message: messages.Cancel) -> None:
        entry = session.requests.get(message.id)
        if entry is not None and self._dispatcher.cancel(entry[1], entry[0]):
            del session.requests[message.id]
            session.release(entry[0])
            self._metrics.cancelled.add()
            self._replies.send(session.client, messages.Cancelled(message.id))

    def _hello(self, session: Session, message: messages.Hello) -> None:
        if self._life.draining:
            raise Draining(ELSEWHERE)
        if not set(message.versions) & set(SUPPORTED_VERSIONS):
            ours = ", ".join(map(str, SUPPORTED_VERSIONS))
            raise UnsupportedVersion(
                f"client speaks versions {list(message.versions)}, this evaluator {ours}: update one"
            )
        session.name, session.greeted = printable(message.client), True
        session.follows = NETWORKS in message.features
        if self._life.loaded:
            self._welcome(session, message.id)
        elif session.hello:
            # Each would cost memory now, and a welcome in the moment when all others get theirs.
            raise NotReady("another hello of this client waits already, until the networks are loaded")
        else:
            session.hello = message.id

    def _welcome(self, session: Session, identity: int) -> None:
        session.network = self._networks.default
        self._replies.send(session.client, self._welcome_for(identity, follows=session.follows))

    def _welcome_for(self, identity: int, *, follows: bool) -> messages.Welcome:
        """What clients learn of the service now. follows: to those that have negotiated NETWORKS."""
        state = self._info.state()
        return messages.Welcome(
            identity,
            version=SUPPORTED_VERSIONS[-1],
            server=SERVER,
            max_batch=self._info.max_request,
            networks=self._networks.infos(),
            state=state.state,
            reason=state.reason,
            default=self._networks.default,
            aliases=self._networks.aliases,
            instance=self._info.instance,
            compression=self._compression,
            features=(NETWORKS,) if follows else (),
        )

    def _ping(self, session: Session, message: messages.Ping) -> None:
        self._replies.send(session.client, messages.Pong(message.id))

    def _status(self, session: Session, message: messages.Status) -> None:
        state, infos = self._info.state(), self._networks.infos()
        reply = messages.StatusReply(
            message.id,
            live=True,
            ready=state.ready,
            draining=self._life.draining,
            networks=infos,
            metrics=self._metrics.status(state),
            state=state.state,
            since=state.since,
            reason=state.reason,
            aliases=self._networks.aliases,
        )
        self._replies.send(session.client, reply)


def _check(batch: PositionBatch) -> None:
    """Raise BadRequest, naming the field, for a batch that cannot be evaluated."""
    if not is_sound(batch):
        check_batch(batch)


_HANDLERS: dict[type[Any], Callable[[Handlers, Session, Any], None]] = {
    messages.Evaluate: Handlers._evaluate,
    messages.Cancel: Handlers._cancel,
    messages.Hello: Handlers._hello,
    messages.Ping: Handlers._ping,
    messages.Status: Handlers._status,
}

assert {*_HANDLERS, *get_args(administration.Request)} == {*get_args(messages.Request)}, "all have a handler"
