"""The JSON Schema of all messages' first frames, as JSON sees a msgpack map.

`#/$defs/request` is what a client sends, `#/$defs/reply` what an evaluator answers. Arrays travel in further
frames, of which it says nothing. What is required is what a decoder insists on; unknown fields are allowed,
since later versions add some.
"""

from __future__ import annotations

from typing import Any

from protocol.codec import WIRE_MAX_POSITIONS
from protocol.compression import ZSTD
from protocol.decoders import MAX_CLIENTS, MAX_FEATURES, MAX_NETWORKS
from protocol.messages import PRIORITIES, PROTOCOL_VERSION

Schema = dict[str, Any]

MOST_ID = 2**63 - 1

ID: Schema = {"type": "integer", "minimum": 1, "maximum": MOST_ID}
COUNT: Schema = {"type": "integer", "minimum": 0, "maximum": MOST_ID}
POSITIVE: Schema = {"type": "integer", "minimum": 1, "maximum": MOST_ID}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
MAP: Schema = {"type": "object"}
NETWORK: Schema = {"$ref": "#/$defs/network"}


def text(longest: int) -> Schema:
    return {"type": "string", "maxLength": longest}


def items(of: Schema, most: int) -> Schema:
    return {"type": "array", "items": of, "maxItems": most}


def or_null(schema: Schema) -> Schema:
    """A field that may also be nil, which means the same as if it were missing."""
    return {"anyOf": [schema, {"type": "null"}]}


NETWORKS = items(NETWORK, MAX_NETWORKS)
FEATURES: Schema = or_null(items(text(64), MAX_FEATURES))
ALIASES: Schema = or_null({"type": "object", "additionalProperties": {"type": "string"}})
STATE: Schema = {"state": or_null(text(64)), "reason": or_null(text(32768)), "aliases": ALIASES}

NETWORK_FIELDS: Schema = {
    "name": text(1024),
    "content_hash": text(256),
    "input_format": COUNT,
    "policy_head": text(256),
    "value_head": text(256),
    "policy_heads": items(text(256), 64),
    "value_heads": items(text(256), 64),
    "has_wdl": FLAG,
    "has_moves_left": FLAG,
    "backend": text(256),
    "device": text(1024),
    "recommended_batch": POSITIVE,
    "curve": items(
        {
            "description": "positions in a batch, milliseconds",
            "type": "array",
            "prefixItems": [{"type": "integer"}, NUMBER],
            "minItems": 2,
            "maxItems": 2,
        },
        4096,
    ),
}
NETWORK_OPTIONS: Schema = {"batches_in_flight": or_null(POSITIVE), "devices": or_null(POSITIVE)}

REQUESTS: dict[str, tuple[Schema, Schema]] = {
    "hello": (
        {"versions": items({"type": "integer"}, 64)},
        {"client": or_null(text(256)), "features": FEATURES},
    ),
    "evaluate": (
        {"count": {"type": "integer", "minimum": 1, "maximum": WIRE_MAX_POSITIONS}},
        {
            "class": or_null({"enum": list(PRIORITIES)}),
            "deadline_ms": or_null(NUMBER),
            "network": or_null(text(1024)),
            "compression": {"enum": [ZSTD]},
        },
    ),
    "cancel": ({}, {}),
    "ping": ({}, {}),
    "status": ({}, {}),
    "load": (
        {"path": text(32768)},
        {"policy_head": or_null(text(256)), "value_head": or_null(text(256))},
    ),
    "unload": ({"network": text(1024)}, {}),
    "alias": ({"alias": text(256), "network": text(1024)}, {}),
    "reload": ({}, {"network": or_null(text(1024))}),
    "clients": ({}, {}),
    "drain": ({}, {}),
}
"""By type: the fields that have to be there, and those that may."""

REPLIES: dict[str, tuple[Schema, Schema]] = {
    "welcome": (
        {
            "id": {**ID, "minimum": 0},
            "version": POSITIVE,
            "server": text(1024),
            "max_batch": POSITIVE,
            "networks": NETWORKS,
        },
        {
            **STATE,
            "default": or_null(text(1024)),
            "instance": or_null(text(64)),
            "compression": or_null(items(text(16), 16)),
            "features": FEATURES,
        },
    ),
    "result": (
        {"queue_ms": NUMBER, "compute_ms": NUMBER, "batch": COUNT},
        {"instance": or_null(text(64)), "network": or_null(text(256))},
    ),
    "cancelled": ({}, {}),
    "pong": ({}, {}),
    "status_reply": (
        {"live": FLAG, "ready": FLAG, "draining": FLAG, "networks": NETWORKS, "metrics": MAP},
        {**STATE, "since": or_null(NUMBER)},
    ),
    "loaded": ({"network": NETWORK}, {}),
    "unloaded": ({}, {}),
    "aliased": ({"network": text(1024)}, {}),
    "reloaded": ({"networks": NETWORKS, "changed": items(text(1024), MAX_NETWORKS)}, {}),
    "clients_reply": ({"clients": items(MAP, MAX_CLIENTS)}, {}),
    "drained": ({}, {}),
    "error": ({"id": {**ID, "minimum": 0}, "code": text(64), "message": text(32768)}, {}),
}
"""As REQUESTS."""


def _message(kind: str, required: Schema, optional: Schema) -> Schema:
    fields = {"type": {"const": kind}, "id": ID, **required}
    return {"type": "object", "properties": {**fields, **optional}, "required": [*fields]}


def _any_of(kinds: dict[str, tuple[Schema, Schema]]) -> Schema:
    return {"oneOf": [{"$ref": f"#/$defs/{kind}"} for kind in kinds]}


def schema() -> Schema:
    """The whole schema: any message, and each by the name of its type in $defs."""
    kinds = {**REQUESTS, **REPLIES}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"The evaluator protocol, version {PROTOCOL_VERSION}: first frames",
        "oneOf": [{"$ref": "#/$defs/request"}, {"$ref": "#/$defs/reply"}],
        "$defs": {
            "request": _any_of(REQUESTS),
            "reply": _any_of(REPLIES),
            "network": {
                "type": "object",
                "properties": {**NETWORK_FIELDS, **NETWORK_OPTIONS},
                "required": [*NETWORK_FIELDS],
            },
            **{kind: _message(kind, *fields) for kind, fields in kinds.items()},
        },
    }
