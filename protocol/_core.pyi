"""What the protocol does without the interpreter (protocol/core): headers of evaluations, and connections on
this machine without ZeroMQ's threads, by ZMTP 3.1 with the mechanism NULL.

Frame, Stream and Hub are there on Linux only.
"""

from collections.abc import Sequence

from _typeshed import ReadableBuffer

CORE_DIGEST: str

def plain_evaluate(
    frames: Sequence[ReadableBuffer],
) -> tuple[int, int, str, str, float | None] | None:
    """Id, count, class, network and deadline_ms of an uncompressed `evaluate` whose arrays have the sizes
    that its count asks for and are aligned. None for any other message, and for what is rare: who gets it has
    to look for itself. What is in the arrays is not checked."""

def plain_result(frames: Sequence[ReadableBuffer]) -> tuple[int, float, float, int, str, str] | None:
    """The same of a `result`: id, queue_ms, compute_ms, batch, instance, network."""

class Frame:
    """One part of a message that was received. Has the buffer protocol, read-only; its memory is aligned for
    any number."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Stream:
    """A client's connection to a UNIX socket. Belongs to one thread, which itself writes and reads.

    frame, message, parts: the most bytes of a frame from the other side, of a message with all its frames,
    and frames of a message. In `ConnectionError` stands why it has ended: "peer", "refused" (too many
    connections), "foreign" (no ZMTP 3 with NULL), "malformed", "frame", "message", "parts", "memory".
    """

    def __init__(self, path: bytes, *, frame: int, message: int, parts: int) -> None:
        """path: an abstract name begins with a zero byte. Raises OSError if nobody listens there."""

    @property
    def was_ready(self) -> bool:
        """Whether the handshake was over."""

    @property
    def has_message(self) -> bool:
        """Whether a message is there that came together with another one."""

    def fileno(self) -> int:
        """Readable when `receive` may have something to return or to raise, unless `has_message`."""

    def send(self, frames: Sequence[ReadableBuffer]) -> bool:
        """Send a message of 1 to 16 frames without waiting; what the system has no room for is copied. False
        if the connection has ended."""

    def receive(self, timeout_ms: int, interrupt: int = -1) -> list[Frame] | None:
        """The next message. None if none came in that time (negative: for ever), before the descriptor
        `interrupt` became readable. Raises ConnectionError once the connection has ended
        and all that came before has been received."""

    def close(self) -> None:
        """End the connection. Idempotent."""

class Hub:
    """All connections of a service's listening socket. `wait`, `take` and `ended` belong to one thread at a
    time; the others may be called from any.

    frame, message, parts: as of Stream; beyond, a client is closed. kept: bytes of answers that a client may
    leave unread before it is closed. connections: at a time. One more takes the place of the connection that
    has been silent for longest; while all have sent a message, it is refused.
    """

    def __init__(self, *, frame: int, message: int, parts: int, kept: int, connections: int) -> None: ...
    def listen(self, listener: int) -> None:
        """Take a listening socket over, by its descriptor."""

    def stop_listening(self) -> None:
        """Take no more connections; those that there are go on."""

    def watch(self, descriptor: int) -> None:
        """Have `wait` end when this descriptor is readable, too."""

    def wait(self, timeout_ms: int) -> bool:
        """Wait for messages, for ends of connections or for what is watched; True if the latter is readable.
        Returns at once if there are messages to take."""

    @property
    def has_message(self) -> bool:
        """Whether `take` has something to return, or ends of connections to note."""

    def take(self) -> tuple[int, list[Frame]] | None:
        """The next message, with the number of the connection that it came by. Numbers are not used again."""

    def ended(self) -> list[int]:
        """The connections that have ended since the last call, and whose messages have all been taken."""

    def address_of(self, number: int) -> str | None:
        """Who is at the other end, as localhost:UID:GID:PID, empty if that is not known; None for a
        connection that has ended."""

    def send(self, number: int, frames: Sequence[ReadableBuffer]) -> bool:
        """Send a message of 1 to 16 frames without waiting. False if there is no such client any more, or it
        has left too much unread and is closed."""

    def hang_up(self, number: int) -> None:
        """End a connection."""

    def __len__(self) -> int:
        """Connections at present."""

    def news(self) -> list[tuple[str, str]]:
        """Address and reason of some that were closed since the last call: the reasons of Stream, and
        "unread"."""

    def close(self, linger_ms: int) -> None:
        """End all connections: once all answers have been handed to the system, or after that time."""
