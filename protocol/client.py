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
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import zmq

from protocol.batch import EvaluationBatch, PositionBatch
from protocol.codec import decode_reply, encode, encode_evaluate
from protocol.compression import Compressor, offered
from protocol.connections.address_list import is_near
from protocol.connections.connection import Connection, connect, wait_for
from protocol.errors import (
    BadRequest,
    Cancelled,
    Draining,
    EvaluatorError,
    EvaluatorLost,
    EvaluatorTimeout,
    NetworkChanged,
    RemoteError,
    TooLarge,
    UnknownNetwork,
    remote_error,
)
from protocol.messages import (
    FEATURES,
    SUPPORTED_VERSIONS,
    Alias,
    Aliased,
    Cancel,
    Clients,
    ClientsReply,
    Curve,
    Drain,
    Drained,
    Error,
    Hello,
    Load,
    Loaded,
    NetworkInfo,
    Ping,
    Pong,
    Priority,
    Reload,
    Reloaded,
    Reply,
    Request,
    Result,
    Status,
    StatusReply,
    Unload,
    Unloaded,
    Welcome,
)
from protocol.messages import Cancelled as CancelledMessage

if TYPE_CHECKING:
    from protocol._core import Stream

ReplyType = TypeVar(
    "ReplyType",
    Welcome,
    Pong,
    StatusReply,
    Loaded,
    Unloaded,
    Aliased,
    Reloaded,
    ClientsReply,
    Drained,
)


@dataclass(slots=True)  # Not frozen, as the batches of protocol/batch.py.
class Completed:
    """The end of a submitted batch: an evaluation or an error, never both.

    id: what submit returned. queue_ms, compute_ms: time in the evaluator's queue and on its device.
    batch_rode: positions in the device batch it was merged into.
    """

    id: int
    evaluation: EvaluationBatch | None
    error: RemoteError | None = None
    queue_ms: float = 0.0
    compute_ms: float = 0.0
    batch_rode: int = 0

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled rather than failed."""
        return isinstance(self.error, Cancelled)

    def result(self) -> EvaluationBatch:
        """The evaluation; raises the error if there is one instead."""
        if self.error is not None:
            raise self.error
        assert self.evaluation is not None
        return self.evaluation


class EvaluatorClient:
    """A connection to one evaluator, made and shaken hands on when constructed.

    address: a ZeroMQ address, "ipc:///run/…" or "tcp://127.0.0.1:5577", or with the public key of an
        evaluator that demands keys "tcp://gpu.example:5577#3b9f…".
    network: name or content hash of the network to use; None takes the evaluator's default.
    timeout: seconds to wait for the handshake (an evaluator that still loads its network answers when it is
        done) and for blocking calls. name: what the evaluator's log calls this client.
    keys: the folder with the client's own pair (made if it is missing) and the keys of evaluators that need
        not stand in the address; by default the user's configuration folder.
    handshake: False connects without hello and so without waiting for a network; only ping, status and drain
        are of use then.
    compress: whether batches are compressed, if both sides can; None: where they go to another machine.

    Attributes: networks (all NetworkInfo of the evaluator), network (the chosen one), max_batch (most
    positions per request), recommended_batch, curve, server, instance (which run of the evaluator this is; ""
    from one that does not say), version, in_flight (number of batches submitted and not received), heard_at
    (when the last message came, as time.monotonic tells it), draining (the evaluator has said that it is
    about to end: what is in flight is still answered, and nothing new is taken), notices (how often it has
    announced other networks: `networks`, `aliases` and `network` then follow).

    Where the evaluator names the network of each result, no result of another network than the one that the
    batch was submitted for is returned: the batch completes with NetworkChanged instead.

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
        self._next_id = 1
        self._in_flight: dict[int, tuple[int, int, NetworkInfo | None]] = {}
        self._completed: list[Completed] = []
        self._answers: dict[int, Reply] = {}
        self._knock = 0
        self.heard_at = time.monotonic()
        self.draining = False
        self.notices = 0
        self._bound = ""
        """What `use` was given; "" for the default network."""
        self._default = ""
        self.version = 0
        self.server = ""
        self.instance = ""
        self.max_batch = 0
        self.networks: tuple[NetworkInfo, ...] = ()
        self.aliases: Mapping[str, str] = {}
        self.network: NetworkInfo
        try:
            self._connect(handshake)
        except BaseException:
            self.close()
            raise

    # -- batches ---------------------------------------------------------------------------------------

    @property
    def recommended_batch(self) -> int:
        """The smallest batch within 5 % of the chosen network's best throughput."""
        return self.network.recommended_batch

    @property
    def curve(self) -> Curve:
        """Measured (batch, milliseconds) of the chosen network."""
        return self.network.curve

    @property
    def compresses(self) -> bool:
        """Whether batches are compressed on the way."""
        return self._compressor is not None

    @property
    def in_flight(self) -> int:
        """Batches submitted and not received yet."""
        return len(self._in_flight) + len(self._completed)

    def submit(
        self,
        batch: PositionBatch,
        *,
        priority: Priority = "play",
        deadline_ms: float | None = None,
        network: str | None = None,
    ) -> int:
        """Send a batch without waiting and return its id, which `receive` names later.

        The arrays are not copied: leave them unchanged until the batch's completion has been received. They
        are checked by the evaluator, not here. network: name or content hash, if not the client's own.
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
        frames = encode_evaluate(identity, batch, priority, deadline_ms, chosen, self._compressor)
        self._connected().send(frames)
        self._in_flight[identity] = (count, len(batch.moves), meant)
        return identity

    def receive(self, timeout_ms: float | None = None) -> Completed | None:
        """The next batch that is done, in the order of the evaluator's answers.

        Waits at most timeout_ms (0: not at all; None: as long as it takes), or until `interrupt_by` says
        otherwise or the evaluator that it is `draining` or has other networks. Returns None if nothing is
        done by then, or nothing is in flight. Raises EvaluatorLost when the connection breaks; the batches in
        flight are then gone (`reconnect` and submit them again).
        """
        if self._completed:
            return self._completed.pop(0)
        deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        known, notices = self.draining, self.notices
        while self._in_flight and self.draining is known and self.notices == notices:
            if not self._pump(deadline, self._interrupt):
                return None
            if self._completed:
                return self._completed.pop(0)
        return None

    def interrupt_by(self, descriptor: int) -> None:
        """Have `receive` return when this file descriptor (a socket's) becomes readable, so that one thread
        can wait for answers and for other work."""
        self._interrupt = descriptor

    @property
    def stream(self) -> Stream | None:
        """The connection's socket, for one who sends batches and receives their evaluations without this
        client, and then tells it by `exchanged`; nothing of the client may be used meanwhile. None where that
        is not possible: it is another kind of connection, compresses, or has something to `receive` already.
        """
        if self._connection is None or self._completed or self._compressor is not None or self.draining:
            return None
        return self._connection.stream if self._interrupt is None else None

    @property
    def next_id(self) -> int:
        """The id of the next request."""
        return self._next_id

    def exchanged(
        self, answered: Iterable[int], under_way: Mapping[int, tuple[int, int]], next_id: int, *, heard: bool
    ) -> None:
        """Tell what has been done through `stream`: which batches have been answered, and which are in
        flight, with their numbers of positions and moves. heard: something was received."""
        for identity in answered:
            self._in_flight.pop(identity, None)
        network = self.network  # No notice is taken meanwhile.
        self._in_flight.update((each, (*size, network)) for each, size in under_way.items())
        self._next_id = max(self._next_id, next_id)
        if heard:
            self.heard_at = time.monotonic()

    def evaluate(
        self,
        batch: PositionBatch,
        *,
        priority: Priority = "play",
        deadline_ms: float | None = None,
        network: str | None = None,
    ) -> EvaluationBatch:
        """Evaluate one batch and wait for it. Other batches may be in flight.

        Raises the evaluator's error (a RemoteError), EvaluatorTimeout after the client's timeout (the batch
        is cancelled), EvaluatorLost.
        """
        identity = self.submit(batch, priority=priority, deadline_ms=deadline_ms, network=network)
        deadline = time.monotonic() + self.timeout
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
        """Whether the evaluator said that it is about to end, in what came before its connection broke."""
        with suppress(EvaluatorError):
            while not self.draining and self._pump(0.0):
                pass
        return self.draining

    def cancel(self, identity: int) -> None:
        """Ask to drop a batch in flight. It still completes once, as cancelled or, if that was too late,
        with its evaluation. Unknown ids are ignored."""
        if identity in self._in_flight:
            self._send(Cancel(identity))

    # -- everything else -------------------------------------------------------------------------------

    def ping(self) -> float:
        """Round trip to the evaluator in milliseconds."""
        start = time.perf_counter()
        self._ask(Ping(self._identity()), Pong)
        return (time.perf_counter() - start) * 1000

    def knock(self) -> None:
        """Ask whether the evaluator is there, without waiting: the answer changes `heard_at` when `receive`
        comes to it. Raises EvaluatorLost."""
        self._knock = self._identity()
        self._send(Ping(self._knock))

    def status(self) -> StatusReply:
        """Health, networks and metrics of the evaluator."""
        return self._ask(Status(self._identity()), StatusReply)

    def load(
        self, path: str, *, policy_head: str = "", value_head: str = "", timeout: float | None = None
    ) -> NetworkInfo:
        """Load a network file into the evaluator (a path on its machine) and wait until it serves it.

        Does not change which network this client uses: see `use`. Raises LoadFailed.
        """
        request = Load(self._identity(), path, policy_head, value_head)
        network = self._ask(request, Loaded, timeout).network
        self.networks = (*(n for n in self.networks if n.name != network.name), network)
        return network

    def unload(self, network: str) -> None:
        """Make the evaluator forget a network, by name or content hash. Raises UnknownNetwork."""
        self._ask(Unload(self._identity(), network), Unloaded)
        self.networks = tuple(n for n in self.networks if network not in (n.name, n.content_hash))

    def alias(self, alias: str, network: str) -> str:
        """Have an alias mean a network, or nothing any more if `network` is empty; returns the network's
        name. The alias `default` is the network of clients that connect from then on and name none. Raises
        UnknownNetwork, BadRequest."""
        return self._ask(Alias(self._identity(), alias, network), Aliased).network

    def reload(self, network: str = "", *, timeout: float | None = None) -> Reloaded:
        """Have the evaluator look at a network's file again, or at all files, and serve what is there now
        under the same name. Raises LoadFailed, UnknownNetwork."""
        return self._ask(Reload(self._identity(), network), Reloaded, timeout)

    def clients(self) -> tuple[Mapping[str, Any], ...]:
        """Who is connected: one map for each client, see docs/reference/protocol.md."""
        return self._ask(Clients(self._identity()), ClientsReply).clients

    def drain(self, timeout: float | None = None) -> None:
        """Tell the evaluator to finish what it has and exit; returns when nothing is queued or running."""
        self._ask(Drain(self._identity()), Drained, timeout)

    def use(self, network: str) -> NetworkInfo:
        """Choose the network for the batches to come, by name, alias or content hash. Raises
        UnknownNetwork."""
        found = self._find(network)
        if found is not None:
            self._bound, self.network = network, found
            return found
        known = ", ".join(candidate.name for candidate in self.networks) or "none"
        raise UnknownNetwork(f"the evaluator has no network {network!r}; it has: {known}")

    def following(self, network: str) -> NetworkInfo:
        """The network that a client bound to a name, alias or content hash has now: the one that is called
        so, else the default one, else the first. "": the default one."""
        found = self._find(network) if network else None
        return found or self._find(self._default) or next(iter(self.networks), self.network)

    def take_notices(self) -> None:
        """Take what has come, without waiting, so that `networks` and `network` are up to date. Raises
        EvaluatorLost."""
        while self._pump(0.0):
            pass

    def reconnect(self) -> None:
        """Drop the connection and make a new one to the same address, with a new handshake.

        Batches in flight are forgotten; submit them again. Raises as the constructor does.
        """
        self._disconnect()
        self._connect()

    def close(self) -> None:
        """Close the connection without waiting for what is in flight. Idempotent."""
        self._disconnect()
        if not self._context.closed:
            self._context.term()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- the connection --------------------------------------------------------------------------------

    def _connect(self, handshake: bool = True) -> None:
        self._connection = connect(self._context, self.address, self._keys)
        self.draining = False
        if not handshake:
            return
        welcome = self._ask(Hello(self._identity(), SUPPORTED_VERSIONS, self.name, FEATURES), Welcome)
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
        elif welcome.default or (welcome.networks and welcome.default is None):
            self.network = welcome.networks[0] if welcome.default is None else self.following("")
        else:
            known = ", ".join(network.name for network in welcome.networks) or "none"
            raise UnknownNetwork(
                f"the evaluator at {self.address} has no default network; name one of: {known}"
            )

    def _describe(self, welcome: Welcome) -> None:
        self.networks, self.aliases = welcome.networks, welcome.aliases
        self._default = welcome.default or ""

    def _take_notice(self, notice: Welcome) -> None:
        """Take the networks that the evaluator announces, and follow to the one that is meant now."""
        self._describe(notice)
        self.network = self.following(self._bound)
        self.notices += 1

    def _find(self, network: str) -> NetworkInfo | None:
        """The network of this name, alias or content hash."""
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
        identity = self._next_id
        self._next_id += 1
        return identity

    def _send(self, message: Request) -> None:
        self._connected().send(encode(message))

    def _ask(self, request: Request, kind: type[ReplyType], timeout: float | None = None) -> ReplyType:
        self._send(request)
        seconds = self.timeout if timeout is None else timeout
        deadline = time.monotonic() + seconds
        while request.id not in self._answers:
            if not self._pump(deadline):
                raise EvaluatorTimeout(f"the evaluator at {self.address} did not answer in {seconds:g} s")
        reply = self._answers.pop(request.id)
        if isinstance(reply, Error):
            raise remote_error(reply.code, reply.message)
        if not isinstance(reply, kind):
            raise EvaluatorLost(f"{self.address} answered {type(request).__name__} with {reply!r:.80}")
        return reply

    def _pump(self, deadline: float | None, interrupt: int | None = None) -> bool:
        """Take one message in; False if none came by the deadline, or before the descriptor `interrupt`
        became readable. Raises EvaluatorLost."""
        connection = self._connected()
        frames = connection.receive(deadline, interrupt)
        if frames is None:
            return False
        self.heard_at = time.monotonic()
        self._accept(frames, connection)
        return True

    def _accept(self, frames: Sequence[Any], connection: Connection) -> None:
        try:
            reply = decode_reply(frames)
        except BadRequest as error:
            raise connection.broken(f"{self.address} sent an unreadable answer: {error}") from None
        expected = self._in_flight.pop(reply.id, None)
        if expected is None and reply.id == 0 and isinstance(reply, Error) and reply.code == Draining.code:
            self.draining = True
        elif expected is None and reply.id == 0 and isinstance(reply, Welcome):
            self._take_notice(reply)
        elif expected is None:
            # An answer to something given up on (a timeout) is dropped when nobody asks for it.
            if not isinstance(reply, Result | CancelledMessage) and reply.id != self._knock:
                self._answers[reply.id] = reply
        elif isinstance(reply, Result):
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
        elif isinstance(reply, CancelledMessage):
            self._completed.append(Completed(reply.id, None, Cancelled("cancelled")))
        elif isinstance(reply, Error):
            refused, meant = remote_error(reply.code, reply.message), expected[2]
            if isinstance(refused, UnknownNetwork) and meant is not None and self._has_moved(meant):
                refused = _moved_from(meant)
            self._completed.append(Completed(reply.id, None, refused))
        else:
            raise connection.broken(f"{self.address} answered an evaluate with {type(reply).__name__}")

    def _has_moved(self, network: NetworkInfo) -> bool:
        """Whether the evaluator has announced that a network's name now means another one."""
        return self.following(network.name).identity != network.identity


def _moved_from(network: NetworkInfo) -> NetworkChanged:
    return NetworkChanged(f"network {network.name} ({network.content_hash[:8]}) is not served any more")


def wait_for_any(
    clients: Sequence[EvaluatorClient], timeout_ms: float | None, interrupt: int | None = None
) -> None:
    """Wait until `receive` of one of these clients, of one thread, has something to return or to raise, or
    until the file descriptor `interrupt` becomes readable; at most timeout_ms (None: as long as it takes)."""
    if not any(client._completed or client._connection is None for client in clients):
        wait_for([client._connected() for client in clients], timeout_ms, interrupt)
