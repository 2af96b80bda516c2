# SPDX-License-Identifier: GPL-3.0-or-later
"""The messages of protocol version 1, as plain data. `codec.py` converts them to frames and back.

docs/reference/protocol.md shows each on the wire. Each field is declared once, see fields.py.
Every message has an `id`: a request chooses one, its answer repeats it. Ids are positive and unique among a
client's requests in flight; 0 means "no request" in an error about an unreadable message.
"""

# No `from __future__ import annotations`: the annotations are read at run time.

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeAlias, get_args

from protocol.batch import EvaluationBatch, PositionBatch
from protocol.common.classes import PRIORITIES as PRIORITIES
from protocol.common.classes import Priority as Priority
from protocol.wire import fields
from protocol.wire.compression import ZSTD

PROTOCOL_VERSION = 1
SUPPORTED_VERSIONS: tuple[int, ...] = (1,)

DEFAULT_ALIAS = "default"
"""Alias of the network of clients that name none."""

NETWORKS = "networks"
"""Feature: results name their network, and the evaluator announces changed networks."""

FEATURES = (NETWORKS,)
"""Features that this implementation can negotiate in hello and welcome."""

WIRE_MAX_POSITIONS = 65536
"""Maximum positions per request on the wire; `max_batch` of the welcome is usually smaller."""

Curve: TypeAlias = Annotated[
    tuple[tuple[int, float], ...],
    fields.items(fields.pair(fields.whole(1, WIRE_MAX_POSITIONS), fields.NUMBER), 4096),
]
"""Measured latency: (batch in positions, milliseconds), by ascending batch."""


def best_rate(curve: Sequence[tuple[int, float]]) -> float:
    """Return the highest positions per second of a curve; 0 for an empty one."""
    return max((1000 * batch / ms for batch, ms in curve if ms > 0), default=0.0)


Count: TypeAlias = Annotated[int, fields.whole(0)]
Positive: TypeAlias = Annotated[int, fields.whole(1)]
Positions: TypeAlias = Annotated[int, fields.whole(1, WIRE_MAX_POSITIONS)]
Flag: TypeAlias = Annotated[bool, fields.FLAG]
Number: TypeAlias = Annotated[float, fields.NUMBER]
Text64: TypeAlias = Annotated[str, fields.text(64)]
Text256: TypeAlias = Annotated[str, fields.text(256)]
Text1024: TypeAlias = Annotated[str, fields.text(1024)]
Text32768: TypeAlias = Annotated[str, fields.text(32768)]
Map: TypeAlias = Annotated[Mapping[str, Any], fields.MAP]
Versions: TypeAlias = Annotated[tuple[int, ...], fields.items(fields.INTEGER, 64)]
Heads: TypeAlias = Annotated[tuple[str, ...], fields.items(fields.text(256), 64)]
Features: TypeAlias = Annotated[tuple[str, ...], fields.items(fields.text(64), 64)]
Aliases: TypeAlias = Annotated[
    Mapping[str, str], fields.MAP_OF_TEXT, "further names, each with its network's name"
]


@dataclass(frozen=True, slots=True)
class NetworkInfo:
    """One network that an evaluator serves."""

    name: Annotated[Text1024, "how requests name it; unique within the evaluator"]
    content_hash: Annotated[Text256, "SHA-256 of its file, in hexadecimal digits"]
    input_format: Annotated[Count, "lc0's number of the planes that it wants: 1, 2, 3, 4, 132, 5 or 133"]
    policy_head: Annotated[Text256, fields.REQUIRED, "policy head in use"] = ""
    value_head: Annotated[Text256, fields.REQUIRED, "value head in use"] = ""
    policy_heads: Annotated[Heads, fields.REQUIRED, "all policy heads of the file"] = ()
    value_heads: Annotated[Heads, fields.REQUIRED, "all value heads of the file"] = ()
    has_wdl: Annotated[Flag, fields.REQUIRED, "whether win, draw and loss are the network's own"] = True
    has_moves_left: Annotated[Flag, fields.REQUIRED, "whether moves left are the network's own"] = True
    backend: Annotated[Text256, fields.REQUIRED, "backend that runs it"] = ""
    device: Annotated[Text1024, fields.REQUIRED, "device that runs it"] = ""
    recommended_batch: Annotated[
        Positions, fields.REQUIRED, "smallest batch within 5 % of the best throughput"
    ] = 256
    curve: Annotated[Curve, fields.REQUIRED, "milliseconds by batch size, divided among idle devices"] = ()
    batches_in_flight: Annotated[Positive, "requests of that size in flight that keep the devices busy"] = 2
    devices: Annotated[Positive, "devices that run it, described as one"] = 1
    precision: Annotated[Text1024, "number formats of its products, and why"] = ""

    @property
    def identity(self) -> str:
        """Equal for networks with equal evaluations: same file, same heads in use, both or none in fp8."""
        formats = self.precision.partition(":")[0] if self.precision.startswith("fp8") else ""
        return " ".join(filter(None, (self.content_hash, self.policy_head, self.value_head, formats)))


Network: TypeAlias = Annotated[NetworkInfo, fields.record(NetworkInfo, "network")]
Networks: TypeAlias = Annotated[
    tuple[NetworkInfo, ...], fields.items(fields.record(NetworkInfo, "network"), 1024)
]


@dataclass(frozen=True, slots=True)
class Message:
    """Base class of all messages. A message with no other field is a class without a decorator."""

    id: Positive


@dataclass(frozen=True, slots=True)
class Hello(Message):
    """First message of a client."""

    versions: Annotated[Versions, fields.REQUIRED, "protocol versions that the client speaks"] = (
        SUPPORTED_VERSIONS
    )
    client: Annotated[Text256, "its name in logs; unprintable characters are shown as `?`"] = ""
    features: Annotated[Features, "what it can negotiate"] = ()


@dataclass(frozen=True, slots=True)
class Welcome(Message):
    """Answer to hello, sent once the evaluator is ready.

    default: None from an evaluator that does not send it; then the first network is the default.
    A welcome with id 0 is a notice to clients with the feature NETWORKS: networks or their devices changed.
    """

    id: Count
    version: Annotated[Positive, "highest version that both speak"]
    server: Annotated[Text1024, "name and version of the evaluator"]
    max_batch: Annotated[Positions, "most positions in one request"]
    networks: Annotated[Networks, "all networks; the default is the first"]
    state: Annotated[Text64, "as in status_reply"] = ""
    reason: Annotated[Text32768, "as in status_reply"] = ""
    default: Annotated[
        str | None, fields.text(1024), "network of requests that name none; empty without one"
    ] = None
    aliases: Aliases = field(default_factory=dict)
    instance: Annotated[Text64, "differs for each start of an evaluator"] = ""
    compression: Annotated[
        tuple[str, ...], fields.items(fields.text(16), 16), "how an evaluate may be compressed"
    ] = ()
    features: Annotated[Features, "features in force on this connection"] = ()


@dataclass(frozen=True, slots=True)
class Evaluate(Message):
    """Evaluate a batch. Answered by exactly one of result, error and cancelled."""

    batch: PositionBatch
    priority: Annotated[Priority, fields.choice(*PRIORITIES), "served in this order", "class"] = "play"
    deadline_ms: Annotated[float | None, fields.NUMBER, "answer `deadline_exceeded` if queued for longer"] = (
        None
    )
    network: Annotated[Text1024, "name, alias or content hash; empty for the `default` of the welcome"] = ""
    target_ms: Annotated[float | None, fields.NUMBER, "wanted latency, if below the target of the class"] = (
        None
    )


ARRAY_FIELDS = (
    fields.Field("count", fields.whole(1, WIRE_MAX_POSITIONS), "positions in this request, 1 to `max_batch`"),
    fields.Field("compression", fields.choice(ZSTD), "if the arrays are compressed", optional=True),
)
"""Fields of an evaluate's first frame that describe its arrays."""


@dataclass(frozen=True, slots=True)
class Result(Message):
    """Answer to evaluate. batch: size of the largest device batch, if the request was split."""

    evaluation: EvaluationBatch
    queue_ms: Annotated[Number, "milliseconds from receipt to launch"]
    compute_ms: Annotated[Number, "milliseconds on the device"]
    batch: Annotated[Count, "positions in the device batch"]
    instance: Annotated[Text64, "as in the welcome"] = ""
    network: Annotated[Text256, "content hash of the network; only with the feature `networks`"] = ""


class Cancel(Message):
    """Cancel the evaluate with the same id. No effect if it was already answered."""

    __slots__ = ()


class Cancelled(Message):
    """Answer to an evaluate that was cancelled."""

    __slots__ = ()


class Ping(Message):
    """Check that the evaluator is alive. Answered at once, also while networks load."""

    __slots__ = ()


class Pong(Message):
    """Answer to ping."""

    __slots__ = ()


class Status(Message):
    """Ask for the evaluator's state and metrics. Answered at once, also while networks load."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class StatusReply(Message):
    """Answer to status. metrics: see docs/reference/protocol.md."""

    live: Annotated[Flag, "always true"]
    ready: Annotated[Flag, "whether it accepts evaluations and can run them"]
    draining: Annotated[Flag, "whether it is about to exit"]
    networks: Annotated[Networks, "as in the welcome, with the curves as corrected since"]
    metrics: Annotated[Map, fields.REQUIRED, "counts and times since the start"] = field(default_factory=dict)
    state: Annotated[Text64, "loading, ready, degraded or draining"] = ""
    since: Annotated[Number, "start of the state, in seconds of the Unix epoch"] = 0.0
    reason: Annotated[Text32768, "why it is not ready, in words"] = ""
    aliases: Aliases = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Load(Message):
    """Load a network file next to the networks already there."""

    path: Annotated[Text32768, "on the evaluator's machine; empty is the included network"]
    policy_head: Annotated[Text256, "policy head; empty for the file's default"] = ""
    value_head: Annotated[Text256, "value head; empty for the file's default"] = ""


@dataclass(frozen=True, slots=True)
class Loaded(Message):
    """Answer to load, once the network accepts requests."""

    network: Annotated[Network, "as in the welcome"]


@dataclass(frozen=True, slots=True)
class Unload(Message):
    """Unload a network. Requests in its queue are still evaluated."""

    network: Annotated[Text1024, "name or content hash"]


class Unloaded(Message):
    """Answer to unload, once its memory is free."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Alias(Message):
    """Point an alias at a network. The alias `default` applies to later clients that name no network."""

    alias: Annotated[Text256, "the further name"]
    network: Annotated[Text1024, "name, alias or content hash; empty removes the alias"]


@dataclass(frozen=True, slots=True)
class Aliased(Message):
    """Answer to alias."""

    network: Annotated[Text1024, "name of the network"]


@dataclass(frozen=True, slots=True)
class Reload(Message):
    """Reload a network's file and serve it under the same name."""

    network: Annotated[Text1024, "name, alias or content hash; empty for all networks"] = ""


@dataclass(frozen=True, slots=True)
class Reloaded(Message):
    """Answer to reload."""

    networks: Annotated[Networks, "those whose files were read, as they are now"]
    changed: Annotated[
        tuple[str, ...], fields.items(fields.text(1024), 1024), "names of those whose file had new content"
    ]


class Clients(Message):
    """Ask for the connected clients."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ClientsReply(Message):
    """Answer to clients."""

    clients: Annotated[tuple[Map, ...], fields.items(fields.MAP, 65536), "one map for each client"]


class Drain(Message):
    """Reject new requests, finish the queue, then exit."""

    __slots__ = ()


class Drained(Message):
    """Answer to drain, once nothing is queued or running."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Error(Message):
    """A request failed. code: one of protocol.errors.ERRORS."""

    id: Count
    code: Annotated[Text64, "reason, for programs"]
    message: Annotated[Text32768, "what is wrong and what to do, for people"]


Request: TypeAlias = (
    Hello | Evaluate | Cancel | Ping | Status | Load | Unload | Alias | Reload | Clients | Drain
)
"""Messages that a client sends."""

Reply: TypeAlias = (
    Welcome
    | Result
    | Cancelled
    | Pong
    | StatusReply
    | Loaded
    | Unloaded
    | Aliased
    | Reloaded
    | ClientsReply
    | Drained
    | Error
)
"""Messages that an evaluator sends."""


def _by_type(messages: Any) -> dict[str, type[Any]]:
    return {re.sub(r"\B(?=[A-Z])", "_", each.__name__).lower(): each for each in get_args(messages)}


REQUESTS = _by_type(Request)
"""By the `type` of the first frame: the class's name in snake case."""

REPLIES = _by_type(Reply)
"""Like REQUESTS."""

TYPES = {message: name for name, message in {**REQUESTS, **REPLIES}.items()}
"""The `type` of each message."""


def first_frame(message: type[Any]) -> tuple[fields.Field, ...]:
    """Return the fields of a message's first frame, without `type`."""
    return (*(ARRAY_FIELDS if message is Evaluate else ()), *fields.fields_of(message))
