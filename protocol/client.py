# SPDX-License-Identifier: GPL-3.0-or-later
"""EvaluatorClient: a connection to an evaluator, for the search and for scripts.

    with EvaluatorClient("tcp://127.0.0.1:5577") as evaluator:
        evaluation = evaluator.evaluate(batch)          # blocking, one batch
        first = evaluator.submit(batch_a)               # pipelined: keep several in flight
        second = evaluator.submit(batch_b)
        done = evaluator.receive(timeout_ms=1000)       # whichever is ready

A client belongs to one thread: none of its methods may be called from two threads at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import zmq

from protocol.batch import EvaluationBatch, PositionBatch
from protocol.common.closing import Closing
from protocol.connections.address_list import is_near
from protocol.connections.connection import Connection, connect, wait_for
from protocol.errors import (
    BadRequest,
    Draining,
    EvaluatorFailure,
    EvaluatorLost,
    EvaluatorTimeout,
    NetworkChanged,
    RemoteError,
    RequestCancelled,
    TooLarge,
    UnknownNetwork,
    remote_error,
)
from protocol.wire import messages
from protocol.wire.codec import decode_reply, encode, encode_evaluate
from protocol.wire.compression import Compressor, offered

if TYPE_CHECKING:
    from protocol._core import Stream

ReplyType = TypeVar(
    "ReplyType",
    messages.Welcome,
    messages.Pong,
    messages.StatusReply,
    messages.Loaded,
    messages.Unloaded,
    messages.Aliased,
    messages.Reloaded,
    messages.ClientsReply,
    messages.Drained,
)


@dataclass(slots=True)  # Not frozen, like the batches of protocol/batch.py.
class Completed:
    """The end of a submitted batch: an evaluation or an error, never both.

    id: as returned by submit. queue_ms, compute_ms: time in the evaluator's queue and on its device.
    batch_rode: positions in the device batch that it was merged into.
    """

    id: int
    evaluation: EvaluationBatch | None
    error: RemoteError | None = None
    queue_ms: float = 0.0
    compute_ms: float = 0.0
    batch_rode: int = 0

    @property
    def cancelled(self) -> bool:
        """True if it was cancelled rather than failed."""
        return isinstance(self.error, RequestCancelled)

    def result(self) -> EvaluationBatch:
        """Return the evaluation, or raise the error if there is one."""
        if self.error is not None:
            raise self.error
        assert self.evaluation is not None
        return self.evaluation


class EvaluatorClient(Closing):
    """A connection to one evaluator. The constructor connects and completes the handshake.

    address: a ZeroMQ address, "ipc:///run/…" or "tcp://127.0.0.1:5577". The public key of an evaluator with
    keys may follow: "tcp://gpu.example:5577#3b9f…".
    network: name or content hash of the network to use; None means the evaluator's default.
    timeout: seconds to wait for blocking calls and for the handshake, which an evaluator completes once its
    network is loaded. name: this client's name in the evaluator's log.
    keys: folder with the client's key pair (created if missing) and the keys of evaluators whose address has
    none (default: the user's configuration folder).
    handshake: False connects without hello, so without a network; then only ping, status and drain work.
    compress: True compresses batches if both sides can; None: only if the evaluator is on another machine.

    Attributes: networks (NetworkInfo of all), network (the chosen one), max_batch (maximum positions per
    request), recommended_batch, curve, server, instance (id of this run of the evaluator, "" if not given),
    version, in_flight (batches submitted and not received), heard_at (time.perf_counter of the last message),
    draining (the evaluator is shutting down: it answers what is in flight and rejects new batches), notices
    (number of announced changes of networks, devices and curves; `networks`, `aliases` and `network` follow).

    If results name their network, a result of another network than the requested one is never returned: the
    batch completes with NetworkChanged.

    Raises EvaluatorLost if nobody listens there, EvaluatorTimeout, UnsupportedVersion, UnknownNetwork.
    """

    def __init__(
        self,
        address: str,
        *,
        network: str | None = None,
        timeout: float = 30.0,
        name: str = "",
        keys: str | Path = "",
        handshake: bool = True,
        compress: bool | None = None,
    ) -> None:
        self.address = address
        self.timeout = timeout
        self.name = name
        self._keys = keys
        self._wanted = network
        self._compress = not is_near(address) if compress is None else compress
        self._compressor: Compressor | None = None
        self._context = zmq.Context()
        self._connection: Connection | None = None
        self._interrupt: int | None = None
        self.next_id = 1
        """The id of the next request."""
        self._in_flight: dict[int, tuple[int, int, messages.NetworkInfo | None]] = {}
        self._completed: list[Completed] = []
        self._answers: dict[int, messages.Reply] = {}
        self._knock = 0
        self.heard_at = time.perf_counter()
        self.draining = False
        self.notices = self._moves = 0
        self._bound = ""
        """Argument of `use`; "" for the default network."""
        self._default = ""
        self.version = 0
        self.server = ""
        self.instance = ""
        self.max_batch = 0
        self.networks: tuple[messages.NetworkInfo, ...] = ()
        self.aliases: Mapping[str, str] = {}
        self.network: messages.NetworkInfo
        try:
            self._connect(handshake)
        except BaseException:
            self.close()
            raise

    # -- batches ---------------------------------------------------------------------------------------

    @property
    def recommended_batch(self) -> int:
        """Smallest batch within 5 % of the chosen network's best throughput."""
        return self.network.recommended_batch

    @property
    def curve(self) -> messages.Curve:
        """Measured (batch, milliseconds) of the chosen network."""
        return self.network.curve

    @property
    def compresses(self) -> bool:
        """True if batches are compressed on this connection."""
        return self._compressor is not None

    @property
    def in_flight(self) -> int:
        """Batches submitted and not received yet."""
        return len(self._in_flight) + len(self._completed)

    def submit(
        self,
        batch: PositionBatch,
        *,
        priority: messages.Priority = "play",
        deadline_ms: float | None = None,
        network: str | None = None,
        target_ms: float | None = None,
    ) -> int:
        """Send a batch without waiting and return its id; `receive` returns a Completed with that id.

        The arrays are not copied: do not change them until the completion was received. The evaluator
        validates them. network: name or content hash (default: the client's network). target_ms: wanted
        latency; the evaluator runs smaller batches for a while if it is below the target of the class.
        Raises TooLarge beyond max_batch, BadRequest for an empty batch, EvaluatorLost.
        """
        count = len(batch.positions)
        if count == 0:
            raise BadRequest("an empty batch cannot be evaluated")
        if count > self.max_batch:
            raise TooLarge(f"{count} positions in one request, this evaluator takes at most {self.max_batch}")
        identity = self._identity()
        chosen = self.network.name if network is None else network
        meant = self.network if network is None else self._find(network)
        frames = encode_evaluate(identity, batch, priority, deadline_ms, chosen, self._compressor, target_ms)
        self._connected().send(frames)
        self._in_flight[identity] = (count, len(batch.moves), meant)
        return identity

    def receive(self, timeout_ms: float | None = None) -> Completed | None:
        """Return the next completed batch, in the order of the evaluator's answers.

        timeout_ms: 0 does not wait, None waits without limit. Return None if nothing completed in time or
        nothing is in flight. Also return None once the descriptor of `interrupt_by` is readable, or the
        evaluator announces that it drains or has other networks.
        Raises EvaluatorLost if the connection breaks. Batches in flight are lost: open a new client.
        """
        if self._completed:
            return self._completed.pop(0)
        deadline = None if timeout_ms is None else time.perf_counter() + timeout_ms / 1000
        known, moves = self.draining, self._moves
        while self._in_flight and self.draining is known and self._moves == moves:
            if not self._pump(deadline, self._interrupt):
                return None
            if self._completed:
                return self._completed.pop(0)
        return None

    def interrupt_by(self, descriptor: int) -> None:
        """Make `receive` return when this descriptor (of a socket) is readable, e.g. for other work."""
        self._interrupt = descriptor

    @property
    def stream(self) -> Stream | None:
        """The connection's socket for code that exchanges batches itself and then calls `exchanged`.
        The client must not be used meanwhile. None if it is another kind of connection, compresses batches,
        or has something to `receive` already."""
        if self._connection is None or self._completed or self._compressor is not None or self.draining:
            return None
        return self._connection.stream

    def exchanged(
        self,
        answered: Iterable[int],
        in_flight: Mapping[int, tuple[int, int, messages.NetworkInfo]],
        next_id: int,
        *,
        heard: bool,
    ) -> None:
        """Record an exchange through `stream`.
        answered: ids that completed. in_flight: positions, moves and network of each id in flight. heard:
        True if any message was received."""
        for identity in answered:
            self._in_flight.pop(identity, None)
        self._in_flight.update(in_flight)
        self.next_id = max(self.next_id, next_id)
        if heard:
            self.heard_at = time.perf_counter()

    def evaluate(
        self,
        batch: PositionBatch,
        *,
        priority: messages.Priority = "play",
        deadline_ms: float | None = None,
        network: str | None = None,
    ) -> EvaluationBatch:
        """Evaluate one batch and wait for the result. Other batches may be in flight.

        Raises the evaluator's RemoteError, EvaluatorLost, and EvaluatorTimeout (the batch is then cancelled).
        """
        identity = self.submit(batch, priority=priority, deadline_ms=deadline_ms, network=network)
        deadline = time.perf_counter() + self.timeout
        while True:
            for index, completed in enumerate(self._completed):
                if completed.id == identity:
                    return self._completed.pop(index).result()
            if not self._pump(deadline):
                self.cancel(identity)
                del self._in_flight[identity]
                raise EvaluatorTimeout(
                    f"the evaluator at {self.address} did not finish a batch of {len(batch)} "
                    f"in {self.timeout:g} s"
                )

    def said_goodbye(self) -> bool:
        """Return True if the evaluator announced its shutdown before the connection broke."""
        with suppress(EvaluatorFailure):
            while not self.draining and self._pump(0.0):
                pass
        return self.draining

    def cancel(self, identity: int) -> None:
        """Ask to discard a batch in flight. It completes once: cancelled or, if too late, evaluated.
        Unknown ids are ignored."""
        if identity in self._in_flight:
            self._send(messages.Cancel(identity))

    # -- everything else -------------------------------------------------------------------------------

    def ping(self) -> float:
        """Return the round-trip time to the evaluator in milliseconds."""
        start = time.perf_counter()
        self._ask(messages.Ping(self._identity()), messages.Pong)
        return (time.perf_counter() - start) * 1000

    def send_keepalive(self) -> None:
        """Send a ping without waiting; `receive` updates `heard_at` with the answer. Raises EvaluatorLost."""
        self._knock = self._identity()
        self._send(messages.Ping(self._knock))

    def status(self) -> messages.StatusReply:
        """Return health, networks and metrics of the evaluator."""
        return self._ask(messages.Status(self._identity()), messages.StatusReply)

    def load(
        self, path: str, *, policy_head: str = "", value_head: str = "", timeout: float | None = None
    ) -> messages.NetworkInfo:
        """Load a network file into the evaluator, wait until it is served, and return its description.

        Does not change which network this client uses: see `use`. path: on its machine. Raises LoadFailed.
        """
        request = messages.Load(self._identity(), path, policy_head, value_head)
        network = self._ask(request, messages.Loaded, timeout).network
        self.networks = (*(n for n in self.networks if n.name != network.name), network)
        return network

    def unload(self, network: str) -> None:
        """Unload a network, given by name or content hash. Raises UnknownNetwork."""
        self._ask(messages.Unload(self._identity(), network), messages.Unloaded)
        self.networks = tuple(n for n in self.networks if network not in (n.name, n.content_hash))

    def alias(self, alias: str, network: str) -> str:
        """Point an alias at a network, or remove it if `network` is empty; return the network's name.
        The alias `default` applies to later clients that name none. Raises UnknownNetwork, BadRequest."""
        return self._ask(messages.Alias(self._identity(), alias, network), messages.Aliased).network

    def reload(self, network: str = "", *, timeout: float | None = None) -> messages.Reloaded:
        """Reload the file of a network, or of all, and serve it under the same name.
        Raises LoadFailed, UnknownNetwork."""
        return self._ask(messages.Reload(self._identity(), network), messages.Reloaded, timeout)

    def clients(self) -> tuple[Mapping[str, Any], ...]:
        """Return one map for each connected client, see docs/reference/protocol.md."""
        return self._ask(messages.Clients(self._identity()), messages.ClientsReply).clients

    def drain(self, timeout: float | None = None) -> None:
        """Ask the evaluator to finish its work and exit; return when nothing is queued or running."""
        self._ask(messages.Drain(self._identity()), messages.Drained, timeout)

    def use(self, network: str) -> messages.NetworkInfo:
        """Choose the network of later batches by name, alias or content hash. Raises UnknownNetwork."""
        found = self._find(network)
        if found is not None:
            self._bound, self.network = network, found
            return found
        known = ", ".join(candidate.name for candidate in self.networks) or "none"
        raise UnknownNetwork(f"the evaluator has no network {network!r}; it has: {known}")

    def following(self, network: str) -> messages.NetworkInfo:
        """Return the network that a name, alias or content hash means now, else the default one.
        network: "" means the default. Without a default, returns the first network."""
        found = self._find(network) if network else None
        return found or self._find(self._default) or next(iter(self.networks), self.network)

    def take_notices(self) -> None:
        """Process received messages without waiting, to update `networks`. Raises EvaluatorLost."""
        while self._pump(0.0):
            pass

    def close(self) -> None:
        """Close the connection without waiting for what is in flight. Idempotent."""
        self._disconnect()
        if not self._context.closed:
            self._context.term()

    # -- the connection --------------------------------------------------------------------------------

    def _connect(self, handshake: bool = True) -> None:
        self._connection = connect(self._context, self.address, self._keys)
        self.draining = False
        if not handshake:
            return
        welcome = self._ask(
            messages.Hello(self._identity(), messages.SUPPORTED_VERSIONS, self.name, messages.FEATURES),
            messages.Welcome,
        )
        self.version = welcome.version
        self.server = welcome.server
        self.instance = welcome.instance
        self.max_batch = welcome.max_batch
        self._describe(welcome)
        self._bound = ""
        if self._compress:
            self._compressor = Compressor() if {*offered()} & {*welcome.compression} else None
        if self._wanted is not None:
            self.use(self._wanted)
            return
        found = self._find(self._default)
        if welcome.default is None and welcome.networks:
            found = welcome.networks[0]
        if found is not None:
            self.network = found
        else:
            known = ", ".join(network.name for network in welcome.networks) or "none"
            raise UnknownNetwork(
                f"the evaluator at {self.address} has no default network; name one of: {known}"
            )

    def _describe(self, welcome: messages.Welcome) -> None:
        self.networks, self.aliases = welcome.networks, welcome.aliases
        self._default = welcome.default or ""

    def _take_notice(self, notice: messages.Welcome) -> None:
        """Store the announced networks and switch to the one that this client's choice means now."""
        served = self._served()
        self._describe(notice)
        self.network = self.following(self._bound)
        self.notices += 1
        self._moves += self._served() != served

    def _served(self) -> tuple[object, ...]:
        return [network.identity for network in self.networks], self.aliases, self._default

    def _find(self, network: str) -> messages.NetworkInfo | None:
        """Return the network of this name, alias or content hash, or None."""
        meant = self.aliases.get(network, network)
        for candidate in self.networks:
            if meant in (candidate.name, candidate.content_hash):
                return candidate
        return None

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self._in_flight.clear()
        self._completed.clear()
        self._answers.clear()

    def _connected(self) -> Connection:
        if self._connection is None:
            raise EvaluatorLost(f"the connection to {self.address} is closed")
        return self._connection

    def _identity(self) -> int:
        identity = self.next_id
        self.next_id += 1
        return identity

    def _send(self, message: messages.Request) -> None:
        self._connected().send(encode(message))

    def _ask(
        self, request: messages.Request, kind: type[ReplyType], timeout: float | None = None
    ) -> ReplyType:
        self._send(request)
        seconds = self.timeout if timeout is None else timeout
        deadline = time.perf_counter() + seconds
        while request.id not in self._answers:
            if not self._pump(deadline):
                raise EvaluatorTimeout(f"the evaluator at {self.address} did not answer in {seconds:g} s")
        reply = self._answers.pop(request.id)
        if isinstance(reply, messages.Error):
            raise remote_error(reply.code, reply.message)
        if not isinstance(reply, kind):
            raise EvaluatorLost(f"{self.address} answered {type(request).__name__} with {reply!r:.80}")
        return reply

    def _pump(self, deadline: float | None, interrupt: int | None = None) -> bool:
        """Process one message, and return False at the deadline or once `interrupt` is readable.
        Raises EvaluatorLost."""
        connection = self._connected()
        frames = connection.receive(deadline, interrupt)
        if frames is None:
            return False
        self.heard_at = time.perf_counter()
        self._accept(frames, connection)
        return True

    def _accept(self, frames: Sequence[Any], connection: Connection) -> None:
        try:
            reply = decode_reply(frames)
        except BadRequest as error:
            raise connection.broken(f"{self.address} sent an unreadable answer: {error}") from None
        expected = self._in_flight.pop(reply.id, None)
        if (
            expected is None
            and reply.id == 0
            and isinstance(reply, messages.Error)
            and reply.code == Draining.code
        ):
            self.draining = True
        elif expected is None and reply.id == 0 and isinstance(reply, messages.Welcome):
            self._take_notice(reply)
        elif expected is None:
            # Discard a late answer to a batch that was given up, and the answer to `send_keepalive`.
            if not isinstance(reply, messages.Result | messages.Cancelled) and reply.id != self._knock:
                self._answers[reply.id] = reply
        elif isinstance(reply, messages.Result):
            *size, meant = expected
            if [len(reply.evaluation), len(reply.evaluation.logits)] != size:
                raise connection.broken(f"{self.address} answered with a batch of another size")
            if meant is not None and reply.network not in ("", meant.content_hash):
                if not self._has_moved(meant):
                    raise connection.broken(f"{self.address} answered by another network unannounced")
                self._completed.append(Completed(reply.id, None, _moved_from(meant)))
                return
            self._completed.append(
                Completed(
                    reply.id,
                    reply.evaluation,
                    queue_ms=reply.queue_ms,
                    compute_ms=reply.compute_ms,
                    batch_rode=reply.batch,
                )
            )
        elif isinstance(reply, messages.Cancelled):
            self._completed.append(Completed(reply.id, None, RequestCancelled("cancelled")))
        elif isinstance(reply, messages.Error):
            refused, meant = remote_error(reply.code, reply.message), expected[2]
            if isinstance(refused, UnknownNetwork) and meant is not None and self._has_moved(meant):
                refused = _moved_from(meant)
            self._completed.append(Completed(reply.id, None, refused))
        else:
            raise connection.broken(f"{self.address} answered an evaluate with {type(reply).__name__}")

    def _has_moved(self, network: messages.NetworkInfo) -> bool:
        """Return True if the evaluator announced that this network's name now means another one."""
        return self.following(network.name).identity != network.identity


def _moved_from(network: messages.NetworkInfo) -> NetworkChanged:
    return NetworkChanged(f"network {network.name} ({network.content_hash[:8]}) is not served any more")


def wait_for_any(
    clients: Sequence[EvaluatorClient], timeout_ms: float | None, interrupt: int | None = None
) -> None:
    """Wait until `receive` of one of these clients may return or raise, or `interrupt` is readable.
    clients: all of one thread. timeout_ms: None waits without limit."""
    if not any(client._completed or client._connection is None for client in clients):
        wait_for([client._connected() for client in clients], timeout_ms, interrupt)
