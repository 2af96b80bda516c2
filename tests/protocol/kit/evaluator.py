# SPDX-License-Identifier: GPL-3.0-or-later
"""The scripted evaluator: checks requests and answers them like the backend `random`."""

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack
import zmq

from evaluator.backends.reference.random import random_evaluation
from protocol.common.keys.pairs import KeyPair
from protocol.errors import Draining, DuplicateId, RemoteError, UnknownNetwork
from protocol.wire.codec import decode_request, encode, max_message_bytes, peek_id
from protocol.wire.messages import (
    PROTOCOL_VERSION,
    Cancel,
    Cancelled,
    Error,
    Evaluate,
    Hello,
    NetworkInfo,
    Ping,
    Pong,
    Reply,
    Result,
    Status,
    StatusReply,
    Welcome,
)
from tests.protocol.kit.judging import faults_of

MAX_BATCH = 64
"""Smaller than real evaluators' limit, to detect clients that ignore `max_batch`."""

NETWORK = NetworkInfo(
    "scripted", "5c" * 32, 1, backend="random", recommended_batch=4, curve=((1, 1.0), (4, 1.1))
)


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """An unanswered evaluate. client: the connection's routing id."""

    client: bytes
    evaluate: Evaluate


class ScriptedEvaluator:
    """One run of an evaluator, from start to end.

    fault: called with each fault of a client. in_flight: unanswered requests, oldest first. greeted: clients
    that received a welcome. draining: True while it rejects requests. messages: number received. compressed:
    number of compressed evaluates.
    """

    def __init__(
        self,
        address: str,
        fault: Callable[[str], None],
        compression: tuple[str, ...] = (),
        pair: KeyPair | None = None,
    ) -> None:
        """compression: offered in the welcome. pair: the evaluator's key pair; it then requires CURVE and
        accepts any client key."""
        self.instance = secrets.token_hex(8)
        self.in_flight: dict[tuple[bytes, int], OpenRequest] = {}
        self.greeted: set[bytes] = set()
        self.draining = False
        self.messages = self.compressed = 0
        self._compression = compression
        self._fault = fault
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.MAXMSGSIZE, max_message_bytes(MAX_BATCH) + 65536)
        if pair is not None:
            self._socket.curve_server, self._socket.curve_secretkey = True, pair.secret
        try:
            self._socket.bind(address)
        except BaseException:
            self.close(linger_ms=0)
            raise
        endpoint = self._socket.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(endpoint, bytes)
        self.address = endpoint.decode().rstrip("\0")

    def close(self, *, linger_ms: int = 1000) -> None:
        """Close all connections. linger_ms: maximum time for sending pending answers."""
        self._socket.close(linger=linger_ms)
        self._context.term()

    def listen(self, enough: Callable[[], bool], deadline: float) -> bool:
        """Process messages until `enough()`, and return False if the deadline (monotonic) passes first."""
        while not enough():
            left = deadline - time.perf_counter()
            if left <= 0 or not self._socket.poll(max(1, int(1000 * left))):
                return False
            client, *frames = self._socket.recv_multipart()
            self.messages += 1
            try:
                self._take(client, frames)
            except RemoteError as error:
                if not isinstance(error, Draining):
                    self._fault(f"{error.code}: {error}")
                self.send(client, Error(peek_id(frames), error.code, str(error)))
        return True

    def answer(self, asked: OpenRequest) -> None:
        """Answer like the backend `random`."""
        del self.in_flight[asked.client, asked.evaluate.id]
        batch = asked.evaluate.batch
        evaluation = random_evaluation(batch)
        self.send(asked.client, Result(asked.evaluate.id, evaluation, 0.1, 1.0, len(batch), self.instance))

    def refuse(self, asked: OpenRequest, code: str, message: str) -> None:
        """Answer with an error."""
        del self.in_flight[asked.client, asked.evaluate.id]
        self.send(asked.client, Error(asked.evaluate.id, code, message))

    def drain(self) -> None:
        """Reject later requests, and notify clients that have said hello."""
        self.draining = True
        for client in self.greeted:
            self.send(client, Error(0, Draining.code, "this evaluator is about to end; go elsewhere"))

    def send(self, client: bytes, message: Reply) -> None:
        """Send a message with an unknown field, which clients must ignore."""
        head, *rest = encode(message)
        header = msgpack.unpackb(head) | {"a_field_of_tomorrow": [1, {"x": None}]}
        self._socket.send_multipart([client, msgpack.packb(header), *(bytes(part) for part in rest)])

    def _take(self, client: bytes, frames: Sequence[bytes]) -> None:
        if frames and not frames[0]:
            self._fault("an empty frame before the message: use a DEALER socket instead of REQ")
            frames = frames[1:]
        message: Any = decode_request(frames, MAX_BATCH)
        if isinstance(message, Evaluate) and len(frames) == 2:
            self.compressed += 1
            if not self._compression:
                self._fault("an evaluate was compressed, which the welcome on this connection did not offer")
        if isinstance(message, Hello | Evaluate) and self.draining:
            raise Draining("this evaluator is about to end; go elsewhere")
        if isinstance(message, Hello):
            if PROTOCOL_VERSION not in message.versions:
                self._fault(f"hello: versions {list(message.versions)} lack {PROTOCOL_VERSION}")
            self.greeted.add(client)
            self.send(client, self._welcome(message.id))
        elif isinstance(message, Evaluate):
            self._evaluate(client, message)
        elif isinstance(message, Cancel):
            if self.in_flight.pop((client, message.id), None) is not None:
                self.send(client, Cancelled(message.id))
        elif isinstance(message, Ping):
            self.send(client, Pong(message.id))
        elif isinstance(message, Status):
            ready = not self.draining
            self.send(client, StatusReply(message.id, True, ready, self.draining, (NETWORK,)))
        else:
            self.send(client, Error(message.id, "bad_request", "this is a script: it only evaluates"))

    def _evaluate(self, client: bytes, message: Evaluate) -> None:
        if client not in self.greeted:
            self._fault("evaluate without a hello on this connection: the network may be any")
        if (client, message.id) in self.in_flight:
            raise DuplicateId(f"another request with id {message.id} is in flight")
        if message.network not in ("", NETWORK.name, NETWORK.content_hash, "default"):
            raise UnknownNetwork(f"no network {message.network!r} here; there is: {NETWORK.name}")
        for fault in faults_of(message.batch):
            self._fault(fault)
        self.in_flight[client, message.id] = OpenRequest(client, message)

    def _welcome(self, identity: int) -> Welcome:
        return Welcome(
            identity,
            PROTOCOL_VERSION,
            "wavefront conformance script",
            MAX_BATCH,
            (NETWORK,),
            state="ready",
            default=NETWORK.name,
            aliases={"default": NETWORK.name},
            instance=self.instance,
            compression=self._compression,
        )
