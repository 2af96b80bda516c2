"""Messages that are a header alone, from its fields: everything but evaluations and their results.

A decoder raises BadRequest for a field that is missing or does not fit, and names it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from protocol.errors import BadRequest
from protocol.fields import Fields
from protocol.messages import (
    Alias,
    Aliased,
    Cancel,
    Cancelled,
    Clients,
    ClientsReply,
    Drain,
    Drained,
    Error,
    Hello,
    Load,
    Loaded,
    NetworkInfo,
    Ping,
    Pong,
    Reload,
    ReloadReply,
    Reply,
    Request,
    Status,
    StatusReply,
    Unload,
    Unloaded,
    Welcome,
)

MAX_NETWORKS = 1024
"""Networks in a welcome or a status."""

MAX_CLIENTS = 65536
"""Clients in a list of them."""

MAX_FEATURES = 64
"""Features in a hello or a welcome."""


def _network(value: Any) -> NetworkInfo:
    fields = Fields.of(value, "network")
    curve = []
    for point in fields.items("curve", 4096):
        if not isinstance(point, list) or len(point) != 2 or type(point[0]) is not int:
            raise BadRequest("curve: must be a list of [batch, milliseconds]")
        milliseconds = point[1]
        if not isinstance(milliseconds, int | float) or not math.isfinite(milliseconds):
            raise BadRequest("curve: milliseconds must be finite numbers")
        curve.append((point[0], float(milliseconds)))
    return NetworkInfo(
        name=fields.text("name", 1024),
        content_hash=fields.text("content_hash", 256),
        input_format=fields.integer("input_format", 0),
        policy_head=fields.text("policy_head", 256),
        value_head=fields.text("value_head", 256),
        policy_heads=fields.texts("policy_heads", 64, 256),
        value_heads=fields.texts("value_heads", 64, 256),
        has_wdl=fields.boolean("has_wdl"),
        has_moves_left=fields.boolean("has_moves_left"),
        backend=fields.text("backend", 256),
        device=fields.text("device", 1024),
        recommended_batch=fields.integer("recommended_batch", 1),
        curve=tuple(curve),
        batches_in_flight=fields.integer("batches_in_flight", 1) if fields.has("batches_in_flight") else 2,
        devices=fields.integer("devices", 1) if fields.has("devices") else 1,
    )


def _networks(fields: Fields) -> tuple[NetworkInfo, ...]:
    return tuple(_network(value) for value in fields.items("networks", MAX_NETWORKS))


def _maps(fields: Fields, name: str) -> tuple[dict[str, Any], ...]:
    values = fields.items(name, MAX_CLIENTS)
    if not all(isinstance(value, dict) for value in values):
        raise BadRequest(f"{name}: must be a list of maps")
    return tuple(values)


def _aliases(fields: Fields) -> dict[str, str]:
    aliases = fields.mapping("aliases") if fields.has("aliases") else {}
    if not all(isinstance(name, str) for name in aliases.values()):
        raise BadRequest("aliases: must be a map of text")
    return aliases


REQUESTS: dict[str, Callable[[Fields], Request]] = {
    "hello": lambda f: Hello(
        f.identity(),
        versions=f.integers("versions", 64),
        client=f.optional_text("client", 256, ""),
        features=f.texts("features", MAX_FEATURES, 64) if f.has("features") else (),
    ),
    "cancel": lambda f: Cancel(f.identity()),
    "ping": lambda f: Ping(f.identity()),
    "status": lambda f: Status(f.identity()),
    "load": lambda f: Load(
        f.identity(),
        path=f.text("path", 32768),
        policy_head=f.optional_text("policy_head", 256, ""),
        value_head=f.optional_text("value_head", 256, ""),
    ),
    "unload": lambda f: Unload(f.identity(), network=f.text("network", 1024)),
    "alias": lambda f: Alias(f.identity(), alias=f.text("alias", 256), network=f.text("network", 1024)),
    "reload": lambda f: Reload(f.identity(), network=f.optional_text("network", 1024, "")),
    "clients": lambda f: Clients(f.identity()),
    "drain": lambda f: Drain(f.identity()),
}
"""By the `type` of a client's message."""

REPLIES: dict[str, Callable[[Fields], Reply]] = {
    "welcome": lambda f: Welcome(
        f.identity(0),
        version=f.integer("version", 1),
        server=f.text("server", 1024),
        max_batch=f.integer("max_batch", 1),
        networks=_networks(f),
        state=f.optional_text("state", 64, ""),
        reason=f.optional_text("reason", 32768, ""),
        default=f.text("default", 1024) if f.has("default") else None,
        aliases=_aliases(f),
        instance=f.optional_text("instance", 64, ""),
        compression=f.texts("compression", 16, 16) if f.has("compression") else (),
        features=f.texts("features", MAX_FEATURES, 64) if f.has("features") else (),
    ),
    "cancelled": lambda f: Cancelled(f.identity()),
    "pong": lambda f: Pong(f.identity()),
    "status_reply": lambda f: StatusReply(
        f.identity(),
        live=f.boolean("live"),
        ready=f.boolean("ready"),
        draining=f.boolean("draining"),
        networks=_networks(f),
        metrics=f.mapping("metrics"),
        state=f.optional_text("state", 64, ""),
        since=f.optional_number("since") or 0.0,
        reason=f.optional_text("reason", 32768, ""),
        aliases=_aliases(f),
    ),
    "loaded": lambda f: Loaded(f.identity(), network=_network(f.mapping("network"))),
    "unloaded": lambda f: Unloaded(f.identity()),
    "aliased": lambda f: Aliased(f.identity(), network=f.text("network", 1024)),
    "reloaded": lambda f: ReloadReply(
        f.identity(), networks=_networks(f), changed=f.texts("changed", MAX_NETWORKS, 1024)
    ),
    "clients_reply": lambda f: ClientsReply(f.identity(), clients=_maps(f, "clients")),
    "drained": lambda f: Drained(f.identity()),
    "error": lambda f: Error(f.identity(0), code=f.text("code", 64), message=f.text("message", 32768)),
}
"""By the `type` of an evaluator's."""
