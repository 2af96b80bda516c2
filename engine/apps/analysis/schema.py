# SPDX-License-Identifier: GPL-3.0-or-later
"""The JSON Schema of all messages: schema.json, where the parser's tables define the fields of queries.

    python run_engine.py analysis --schema > engine/apps/analysis/schema.json

The command renews these fields; the rest is written by hand. The root of the schema describes queries and
actions; `#/$defs/answer` describes answers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.apps.analysis.fields import QueryFields
from engine.apps.analysis.messages import MOST_ID_CHARACTERS
from engine.apps.analysis.query import LISTS, MOST_MOVES, QUERY_OPTIONS
from protocol.common.settings.spec import Setting, settings_of

Schema = dict[str, Any]

FILE = Path(__file__).with_name("schema.json")
IDENTITY: Schema = {"type": "string", "minLength": 1, "maxLength": MOST_ID_CHARACTERS}


def schema() -> Schema:
    """Return the whole schema."""
    whole: Schema = json.loads(FILE.read_text("utf-8"))
    query = whole["$defs"]["query"]
    written = query["properties"]
    fields = {name: setting_schema(field) for name, field in settings_of(QueryFields).items()}
    fields["moves"]["maxItems"] = MOST_MOVES
    query["properties"] = {"id": written["id"], **fields, **{name: written[name] for name in LISTS}}
    options = {name: setting_schema(option) for name, option in QUERY_OPTIONS.items()}
    query["properties"]["options"]["properties"] = options
    return whole


def schema_text() -> str:
    """Return the contents of schema.json."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def setting_schema(setting: Setting) -> Schema:
    """Return the schema of a field or option."""
    described: Schema = {"description": setting.help}
    if isinstance(setting.default, bool):
        return described | {"type": "boolean"}
    if setting.is_number:
        kind = "number" if isinstance(setting.default, float) else "integer"
        return described | {"type": kind, "minimum": setting.low, "maximum": setting.high}
    if isinstance(setting.default, tuple):
        return described | {"type": "array", "items": {"type": "string"}}
    return described | ({"enum": list(setting.choices)} if setting.choices else {"type": "string"})
