"""The messages of protocol version 1, as plain data. `codec.py` turns them into frames and back;
docs/reference/protocol.md shows each on the wire.

Every message has an `id`: requests choose theirs, answers repeat it. Ids are positive and unique among the
requests a client has in flight; 0 stands for "no request" in an error about an unreadable message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from protocol.batch import EvaluationBatch, PositionBatch

PROTOCOL_VERSION = 1
SUPPORTED_VERSIONS: tuple[int, ...] = (1,)

DEFAULT_ALIAS = "default"
"""The alias of the network that is meant by who names none."""

Priority: TypeAlias = Literal["play", "analysis", "selfplay"]
"""Request classes: play is served before analysis, analysis before self-play."""

PRIORITIES: tuple[Priority, ...] = get_args(Priority)

NETWORKS = "networks"
"""The feature by which results name their network and an evaluator announces changed networks."""

FEATURES = (NETWORKS,)
"""What this implementation can negotiate in hello and welcome."""

Curve: TypeAlias = tuple[tuple[int, float], ...]
"""Measured latency: (batch in positions, milliseconds), batches ascending."""


def best_rate(curve: Sequence[tuple[int, float]]) -> float:
    """The most positions per second that a curve promises; 0 for an empty one."""
    return max((1000 * batch / ms for batch, ms in curve if ms > 0), default=0.0)


@dataclass(frozen=True, slots=True)
class NetworkInfo:
    """One network an evaluator serves.

    name: what requests call it; unique within the evaluator. content_hash: sha256 of the file, hex.
    input_format: lc0's number (1, 2, 3, 4, 132, 5, 133) of the planes it wants. policy_head, value_head: the
    heads in use. policy_heads, value_heads: all heads in the file. has_wdl, has_moves_left: whether those
    outputs are real. backend, device: what runs it. recommended_batch: smallest batch within 5 % of the
    best throughput of all devices together. batches_in_flight: how many of these in flight keep them busy.
    devices: how many there are. curve: measured milliseconds per batch size, shared out among them.
    """

    name: str
    content_hash: str
    input_format: int
    policy_head: str = ""
    value_head: str = ""
    policy_heads: tuple[str, ...] = ()
    value_heads: tuple[str, ...] = ()
    has_wdl: bool = True
    has_moves_left: bool = True
    backend: str = ""
    device: str = ""
    recommended_batch: int = 256
    curve: Curve = ()
    batches_in_flight: int = 2
    devices: int = 1

    @property
    def identity(self) -> str:
        """Equal for networks whose evaluations are equal: of one file, with the same heads in use."""
        return " ".join(filter(None, (self.content_hash, self.policy_head, self.value_head)))


@dataclass(frozen=True, slots=True)
class Hello:
    """First message of a client. versions: protocol versions it can speak. client: who it is, for logs.
    features: what it can negotiate, names of FEATURES."""

    id: int
    versions: tuple[int, ...] = SUPPORTED_VERSIONS
    client: str = ""
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Welcome:
    """Answer to hello, sent once the evaluator is ready. version: the highest both speak.

    max_batch: most positions in one request. state, reason: as in StatusReply; empty from an evaluator that
    does not say. default: the name of the network that is meant, from now on, by a request of this client
    that names none; "" if there is none, None from an evaluator that does not say: then it is the first.
    aliases: further names, to the networks' own. instance: tells this run of the evaluator from all others.
    compression: how the arrays of an evaluate may be compressed. features: what the evaluator has negotiated.

    With id 0 it is a notice, which only clients with the feature NETWORKS get: the networks have changed, or
    the devices that compute them.
    """

    id: int
    version: int
    server: str
    max_batch: int
    networks: tuple[NetworkInfo, ...]
    state: str = ""
    reason: str = ""
    default: str | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    instance: str = ""
    compression: tuple[str, ...] = ()
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Evaluate a batch. network: name, alias or content hash, "" for the default. deadline_ms: give up when
    still queued that many milliseconds after the evaluator received it; None never.

    Answered by exactly one of result, error and cancelled.
    """

    id: int
    batch: PositionBatch
    priority: Priority = "play"
    deadline_ms: float | None = None
    network: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """Answer to evaluate. queue_ms: from receipt to launch. compute_ms: on the device. batch: positions in
    the device batch it rode in (the largest, where it was split). instance: as in the Welcome. network:
    content hash of the network that computed it; empty unless the feature NETWORKS was negotiated."""

    id: int
    evaluation: EvaluationBatch
    queue_ms: float
    compute_ms: float
    batch: int
    instance: str = ""
    network: str = ""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel the evaluate of the same id. Without effect when that has been answered already."""

    id: int


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Answer to an evaluate that was cancelled."""

    id: int


@dataclass(frozen=True, slots=True)
class Ping:
    """Is anybody there? Answered at once, also while networks load."""

    id: int


@dataclass(frozen=True, slots=True)
class Pong:
    """Answer to ping."""

    id: int


@dataclass(frozen=True, slots=True)
class Status:
    """Ask for the evaluator's state and metrics. Answered at once, also while networks load."""

    id: int


@dataclass(frozen=True, slots=True)
class StatusReply:
    """Answer to status. live: the process answers. ready: it takes evaluations. metrics: see
    docs/reference/protocol.md. state: loading, ready, degraded or draining; since: when that began, in
    seconds of the Unix epoch; reason: why it is not ready, in words; each may be empty.
    aliases: further names, to the networks' own."""

    id: int
    live: bool
    ready: bool
    draining: bool
    networks: tuple[NetworkInfo, ...]
    metrics: Mapping[str, Any] = field(default_factory=dict)
    state: str = ""
    since: float = 0.0
    reason: str = ""
    aliases: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Load:
    """Load a network file (a path on the evaluator's machine) beside those already there. Empty head
    names choose the file's default heads."""

    id: int
    path: str
    policy_head: str = ""
    value_head: str = ""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Answer to load, once the network takes requests."""

    id: int
    network: NetworkInfo


@dataclass(frozen=True, slots=True)
class Unload:
    """Forget a network (name or content hash). What is queued for it is still evaluated."""

    id: int
    network: str


@dataclass(frozen=True, slots=True)
class Unloaded:
    """Answer to unload, once its memory is free."""

    id: int


@dataclass(frozen=True, slots=True)
class Alias:
    """Have an alias mean a network (name, alias or content hash), or nothing any more if that is empty. The
    alias `default` is meant by clients that say hello from then on and name no network."""

    id: int
    alias: str
    network: str


@dataclass(frozen=True, slots=True)
class Aliased:
    """Answer to alias. network: the network's name."""

    id: int
    network: str


@dataclass(frozen=True, slots=True)
class Reload:
    """Look at a network's file again (all for ""), and serve what is there now under the same name."""

    id: int
    network: str = ""


@dataclass(frozen=True, slots=True)
class ReloadReply:
    """Answer to reload. networks: those looked at, as they are now. changed: names of those whose file had
    another content."""

    id: int
    networks: tuple[NetworkInfo, ...]
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Clients:
    """Ask who is connected."""

    id: int


@dataclass(frozen=True, slots=True)
class ClientsReply:
    """Answer to clients: one map for each, see docs/reference/protocol.md."""

    id: int
    clients: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Drain:
    """Take nothing new, finish what is queued, then exit."""

    id: int


@dataclass(frozen=True, slots=True)
class Drained:
    """Answer to drain, when nothing is queued or running any more."""

    id: int


@dataclass(frozen=True, slots=True)
class Error:
    """A request failed. code: one of protocol.errors.ERRORS. message: what is wrong and what to do."""

    id: int
    code: str
    message: str


Request: TypeAlias = (
    Hello | Evaluate | Cancel | Ping | Status | Load | Unload | Alias | Reload | Clients | Drain
)
"""What a client sends."""

Reply: TypeAlias = (
    Welcome
    | Result
    | Cancelled
    | Pong
    | StatusReply
    | Loaded
    | Unloaded
    | Aliased
    | ReloadReply
    | ClientsReply
    | Drained
    | Error
)
"""What an evaluator sends."""
