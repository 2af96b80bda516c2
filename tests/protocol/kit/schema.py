# SPDX-License-Identifier: GPL-3.0-or-later
"""The JSON Schema of all messages' first frames, with each msgpack map as a JSON object.

`#/$defs/request` covers the client's messages, `#/$defs/reply` the evaluator's. Arrays are in further frames,
which the schema does not describe. Unknown fields are allowed, because later versions add some.
"""

from collections.abc import Iterable
from typing import Any

from protocol.wire.fields import Field, Schema, fields_of
from protocol.wire.messages import PROTOCOL_VERSION, REPLIES, REQUESTS, NetworkInfo, first_frame


def _object(fields: Iterable[Field], head: Schema) -> Schema:
    """Return the schema of a map with these fields. head: schemas of further, required fields."""
    properties, required = {**head}, [*head]
    for field in fields:
        # An optional field may also be nil, which means the same as if it were missing.
        schema = {"anyOf": [field.kind.schema, {"type": "null"}]} if field.optional else field.kind.schema
        properties[field.name] = {"description": field.meaning, **schema} if field.meaning else schema
        required += [] if field.optional else [field.name]
    return {"type": "object", "properties": properties, "required": required}


def _any_of(kinds: dict[str, type[Any]]) -> Schema:
    return {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in kinds]}


def schema() -> Schema:
    """Return the whole schema: any message, and each by the name of its type in $defs."""
    messages = {
        name: _object(first_frame(kind), {"type": {"const": name}})
        for name, kind in {**REQUESTS, **REPLIES}.items()
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"The evaluator protocol, version {PROTOCOL_VERSION}: first frames",
        "oneOf": [{"$ref": "#/$defs/request"}, {"$ref": "#/$defs/reply"}],
        "$defs": {
            "request": _any_of(REQUESTS),
            "reply": _any_of(REPLIES),
            "network": _object(fields_of(NetworkInfo), {}),
            **messages,
        },
    }
