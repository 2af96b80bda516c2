"""Native part of the protocol (protocol/core): headers of evaluations, and local connections.

Connections use ZMTP 3.1 with the mechanism NULL, without ZeroMQ's threads. Frame, Stream and Hub: Linux only.
"""

from collections.abc import Sequence

from _typeshed import ReadableBuffer

CORE_DIGEST: str

def plain_evaluate(
    frames: Sequence[ReadableBuffer],
) -> tuple[int, int, str, str, float | None, float | None] | None:
    """Return id, count, class, network, deadline_ms and target_ms of an uncompressed `evaluate`.
    Its arrays have the sizes that `count` requires and are aligned; their content is not checked. Return None
    for any other message and for unusual headers, which the caller must decode itself."""

def plain_result(frames: Sequence[ReadableBuffer]) -> tuple[int, float, float, int, str, str] | None:
    """Same for a `result`: id, queue_ms, compute_ms, batch, instance, network."""

class Frame:
    """One frame of a received message: a read-only buffer, aligned for any number type."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Stream:
    """A client's connection to a UNIX socket. One thread uses it, which reads and writes itself.

    frame, message, parts: maximum bytes of a received frame, bytes of a received message, frames of a
    message.
    ConnectionError gives the reason of the end: "peer", "refused" (too many connections), "foreign" (not ZMTP
    3 with NULL), "malformed", "frame", "message", "parts", "memory".
    """

    def __init__(self, path: bytes, *, frame: int, message: int, parts: int) -> None:
        """Connect to `path`; an abstract name starts with a zero byte. Raises OSError if nobody listens."""

    @property
    def was_ready(self) -> bool:
        """True once the handshake has completed."""

    @property
    def has_message(self) -> bool:
        """True if another message was received together with the previous one."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when `receive` may return or raise, unless `has_message`."""

    def send(self, frames: Sequence[ReadableBuffer]) -> bool:
        """Send a message of 1 to 16 frames without waiting, and return False if the connection has ended.
        Bytes that the kernel does not accept yet are copied."""

    def receive(self, timeout_ms: int, interrupt: int = -1) -> list[Frame] | None:
        """Return the next message, or None after `timeout_ms` (negative: no limit) or once `interrupt` is
        readable.

        Raises ConnectionError once the connection has ended and all earlier messages were received."""

    def close(self) -> None:
        """End the connection. Idempotent."""

def source_of_peer(descriptor: int) -> bytes:
    """Return what counts as one source of connections: an IPv4 address, the first 64 bits of an IPv6 address,
    or a local user. Empty if unknown."""

def sending_too_much(descriptors: list[int]) -> list[int]:
    """Return the tcp connections whose peers send more than CURVE's handshake before a key is accepted."""

class Strangers:
    """Connections that have not been admitted yet, by number. per_source: maximum of one source."""

    def __init__(self, per_source: int) -> None: ...
    def __len__(self) -> int: ...
    def add(self, number: int, source: bytes) -> None:
        """Add a connection."""

    def remove(self, number: int) -> bool:
        """Remove a connection; False if it is not here."""

    def displaced_by(self, source: bytes) -> int | None:
        """Return the oldest connection of a source that may have no more."""

    def victim(self) -> int | None:
        """Return the oldest connection of the source with the most."""

class Hub:
    """All connections of a service's listening sockets. Only one thread may use `wait`, `take` and `ended`.

    Any thread may call the other methods. frame, message, parts: limits as in Stream; a client that exceeds
    one is disconnected. kept: maximum bytes of unread answers per client before it is disconnected.
    connections: maximum number at local addresses, and at the others. A new connection replaces the oldest
    one that has sent no message, of the source with the most, or is refused if all have sent one. per_source:
    maximum connections without a message of one source, not for local addresses. buffered: maximum bytes of
    all clients; beyond it the client with the most is disconnected. handshake_ms: time limit.
    """

    def __init__(
        self,
        *,
        frame: int,
        message: int,
        parts: int,
        kept: int,
        connections: int,
        per_source: int = ...,
        buffered: int = ...,
        handshake_ms: int = 10_000,
    ) -> None: ...
    def listen(self, listener: int, *, local: bool = True) -> None:
        """Take ownership of a listening socket, given by its descriptor. local: only the service's user can
        connect."""

    def stop_listening(self) -> None:
        """Accept no more connections; existing ones stay open."""

    def watch(self, descriptor: int) -> None:
        """Make `wait` return when this descriptor is readable, too."""

    def wait(self, timeout_ms: int) -> bool:
        """Wait for messages, ended connections or a watched descriptor, and return True if the latter is
        readable.

        Returns at once if there are messages to take."""

    @property
    def has_message(self) -> bool:
        """True if there are messages for `take` or ended connections to record."""

    def take(self) -> tuple[int, list[Frame]] | None:
        """Return the next message and the number of its connection. Numbers are never reused."""

    @property
    def has_news(self) -> bool:
        """True if `ended` or `news` returns something."""

    def ended(self) -> list[int]:
        """Return the connections that ended since the last call and whose messages have all been taken."""

    def address_of(self, number: int) -> str | None:
        """Return the peer as a number or localhost:UID:GID:PID, empty if unknown; None for an ended
        connection."""

    def is_local(self, number: int) -> bool:
        """Return True if a connection was accepted at a local address."""

    def unread(self, number: int) -> int:
        """Return the bytes of answers that a client has not read."""

    @property
    def buffered(self) -> int:
        """Bytes that all connections keep."""

    def counts(self) -> dict[str, int]:
        """Return the number of closed and refused connections by reason."""

    def send(self, number: int, frames: Sequence[ReadableBuffer]) -> bool:
        """Send a message of 1 to 16 frames without waiting.
        Return False if the client has gone, or is disconnected because it left too much unread."""

    def hang_up(self, number: int) -> None:
        """End a connection."""

    def __len__(self) -> int:
        """Return the number of connections."""

    def news(self) -> list[tuple[str, str]]:
        """Return address and reason of some connections closed since the last call, also "unread"."""

    def close(self, linger_ms: int) -> None:
        """End all connections once the kernel has all answers, or after `linger_ms`."""
