# SPDX-License-Identifier: GPL-3.0-or-later
"""Handlers for client messages. Administrative requests are passed to administration.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from evaluator._core import is_sound
from evaluator.scheduling.requests import Request
from evaluator.service import administration
from evaluator.service.administration import Administration
from evaluator.service.connections.transport import Arrived
from evaluator.service.fast_path import FastPath
from evaluator.service.lifecycle import ELSEWHERE
from evaluator.service.record import ServiceParts
from evaluator.service.sessions import ClientSession
from protocol.batch import PositionBatch
from protocol.common.printing import printable
from protocol.common.version import __version__
from protocol.errors import DeadlineExceeded, Draining, DuplicateId, NotReady, UnsupportedVersion
from protocol.wire import messages
from protocol.wire.codec import check_batch, decode_request
from protocol.wire.compression import offered
from protocol.wire.messages import NETWORKS, PRIORITIES, SUPPORTED_VERSIONS

SERVER = f"wavefront-evaluator {__version__}"


class Handlers:
    """Handles messages in the I/O thread. fast_path: notified of each evaluation; None if there is none."""

    def __init__(self, service: ServiceParts, fast_path: FastPath | None) -> None:
        self._service = service
        self._fast_path = fast_path
        self._administration = Administration(service)
        self._compression = offered()

    def handle(self, arrived: Arrived, now: float) -> None:
        """Handle a message. now: time of its arrival in milliseconds of now_ms. Raises RemoteError."""
        service = self._service
        message = decode_request(arrived.frames, service.max_request, _check)
        session = service.sessions.of(arrived.client)
        if session is None:
            administers = isinstance(message, administration.Request)
            session = service.sessions.begin(arrived, include_disconnected=administers)
        if isinstance(message, messages.Evaluate):
            if session is not None:
                self._evaluate(session, message, now)
        elif isinstance(message, administration.Request):
            # Not the session's user: ZeroMQ may give a new connection the identity of an ended one.
            self._administration.handle(arrived.client, message, service.sockets.user(arrived))
        elif session is not None:
            _HANDLERS[type(message)](self, session, message)

    def welcome_waiting(self) -> None:
        """Answer the hellos that came before the first networks."""
        for session, hello in self._service.sessions.take_hellos():
            self._welcome(session, hello)

    def announce_networks(self) -> None:
        """Notify the clients that follow networks of changes to the networks or their devices.

        It also updates each such client's default network. The I/O thread calls it as part of the change, so
        the notice precedes all results of a new network.
        """
        service = self._service
        if service.life.draining:
            return
        notice = self._welcome_for(0, follows=True)
        for session in service.sessions:
            if session.follows and session.greeted:
                session.network = service.networks.default
                service.replies.send(session.client, notice)

    def _evaluate(self, session: ClientSession, message: messages.Evaluate, now: float) -> None:
        service = self._service
        if service.life.draining:
            raise Draining(ELSEWHERE)
        if message.id in session.requests:
            raise DuplicateId(f"another request with id {message.id} is in flight, and goes on")
        network = service.networks.find(message.network, session.network)
        deadline = None if message.deadline_ms is None else now + message.deadline_ms
        if deadline is not None and deadline <= now:
            raise DeadlineExceeded("the deadline had passed on arrival")
        rank = PRIORITIES.index(message.priority)
        named = network.info.content_hash if session.follows else ""
        request = Request(
            session.client,
            message.id,
            message.batch,
            rank,
            now,
            deadline,
            network=named,
            target_ms=message.target_ms,
            payer=session.payer,
        )
        session.charge(request, service.dispatcher.limits.client, service.sockets)
        try:
            service.dispatcher.submit(network, request)
        except BaseException:
            session.release(request)
            raise
        session.requests[message.id] = (request, network)
        if self._fast_path is not None:
            if network.leases:
                self._fast_path.saw(session, network)
            else:
                self._fast_path.in_a_row = 0

    def _cancel(self, session: ClientSession, message: messages.Cancel) -> None:
        entry = session.requests.get(message.id)
        if entry is not None and self._service.dispatcher.cancel(entry[1], entry[0]):
            del session.requests[message.id]
            session.release(entry[0])
            self._service.metrics.cancelled.add()
            self._service.replies.send(session.client, messages.Cancelled(message.id))

    def _hello(self, session: ClientSession, message: messages.Hello) -> None:
        if self._service.life.draining:
            raise Draining(ELSEWHERE)
        if not set(message.versions) & set(SUPPORTED_VERSIONS):
            ours = ", ".join(map(str, SUPPORTED_VERSIONS))
            raise UnsupportedVersion(
                f"client speaks versions {list(message.versions)}, this evaluator {ours}: update one"
            )
        session.name, session.greeted = printable(message.client), True
        session.follows = NETWORKS in message.features
        if self._service.life.loaded:
            self._welcome(session, message.id)
        elif session.hello:
            # Each waiting hello costs memory, and a welcome at the moment when all clients get theirs.
            raise NotReady("another hello of this client waits already, until the networks are loaded")
        else:
            session.hello = message.id

    def _welcome(self, session: ClientSession, identity: int) -> None:
        session.network = self._service.networks.default
        self._service.replies.send(session.client, self._welcome_for(identity, follows=session.follows))

    def _welcome_for(self, identity: int, *, follows: bool) -> messages.Welcome:
        """Return a welcome with the current state. follows: True for clients that have negotiated
        NETWORKS."""
        service = self._service
        state = service.state()
        return messages.Welcome(
            identity,
            version=SUPPORTED_VERSIONS[-1],
            server=SERVER,
            max_batch=service.max_request,
            networks=service.networks.infos(),
            state=state.state,
            reason=state.reason,
            default=service.networks.default,
            aliases=service.networks.aliases,
            instance=service.instance,
            compression=self._compression,
            features=(NETWORKS,) if follows else (),
        )

    def _ping(self, session: ClientSession, message: messages.Ping) -> None:
        self._service.replies.send(session.client, messages.Pong(message.id))

    def _status(self, session: ClientSession, message: messages.Status) -> None:
        service = self._service
        state = service.state()
        reply = messages.StatusReply(
            message.id,
            live=True,
            ready=state.ready,
            draining=service.life.draining,
            networks=service.networks.infos(),
            metrics=service.metrics.status(state),
            state=state.state,
            since=state.since,
            reason=state.reason,
            aliases=service.networks.aliases,
        )
        service.replies.send(session.client, reply)


def _check(batch: PositionBatch) -> None:
    """Raise BadRequest, naming the field, for a batch that cannot be evaluated."""
    if not is_sound(batch):
        check_batch(batch)


_HANDLERS: dict[type[Any], Callable[[Handlers, ClientSession, Any], None]] = {
    messages.Cancel: Handlers._cancel,
    messages.Hello: Handlers._hello,
    messages.Ping: Handlers._ping,
    messages.Status: Handlers._status,
}

_HANDLED = {messages.Evaluate, *_HANDLERS, *get_args(administration.Request)}
assert {*get_args(messages.Request)} == _HANDLED, "all have a handler"
