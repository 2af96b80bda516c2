# SPDX-License-Identifier: GPL-3.0-or-later
"""The JSON Schema of all messages, generated from the tables of the parser.

    python run_engine.py analysis --schema > engine/apps/analysis/schema.json

The root of the schema describes queries and actions; `#/$defs/answer` describes answers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from engine.apps.analysis.actions import FORMAT, STATES
from engine.apps.analysis.fields import Fields
from engine.apps.analysis.messages import MOST_ID_CHARACTERS
from engine.apps.analysis.query import MOST_MOVES, QUERY_OPTIONS
from engine.apps.analysis.restrictions import (
    MOST_DEPTH,
    MOST_RESTRICTIONS,
    MOVE_PATTERN,
    PLAYERS,
)
from engine.apps.analysis.restrictions import MOST_MOVES as MOST_RESTRICTED_MOVES
from engine.search.notation import MOST_CHARACTERS
from protocol.common.settings.spec import Setting, settings_of

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
KEY: Schema = {"type": "string", "pattern": "^[0-9a-f]{16}$"}
WHOLE: Schema = {"type": "integer"}
COUNT: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean"}
RESULT: Schema = {"type": "number", "minimum": -1, "maximum": 1}
SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
WDL: Schema = {
    "description": "probabilities of win, draw and loss",
    "type": "array",
    "items": SHARE,
    "minItems": 3,
    "maxItems": 3,
}
MOVE: Schema = {"type": "string", "pattern": MOVE_PATTERN}
IDENTITY: Schema = {"type": "string", "minLength": 1, "maxLength": MOST_ID_CHARACTERS}


def schema() -> Schema:
    """Return the whole schema."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"wavefront-analysis, format {FORMAT}",
        "anyOf": [_ref("query"), _ref("action")],
        "$defs": {
            "id": {"description": "chosen by the client; answers carry it", **IDENTITY},
            "move": {"description": "UCI notation", **MOVE},
            "wdl": WDL,
            "restriction": _restriction(),
            "restrictions": _restrictions(),
            "query": _query(),
            "action": {"anyOf": [_action(name, more) for name, more in ACTION_FIELDS.items()]},
            "line": _line(),
            "statistics": _statistics(),
            "root": _root(),
            "analysis": _analysis(),
            "no_results": _object({**_turn(), "no_results": {"const": True}}),
            "error": _problem("error", {"turn": COUNT, "during_search": {"const": False}}),
            "warning": _problem("warning", {}),
            "action_answer": {
                "anyOf": [_action(name, more, closed=True) for name, more in _action_answers().items()]
            },
            "answer": {
                "anyOf": [
                    _ref(name) for name in ("analysis", "no_results", "error", "warning", "action_answer")
                ]
            },
        },
    }


def schema_text() -> str:
    """Return the contents of engine/apps/analysis/schema.json."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


# -- requests ------------------------------------------------------------------------------------------------

_TURNS: Schema = {"type": "array", "items": WHOLE}

ACTION_FIELDS: Mapping[str, Mapping[str, Schema]] = {
    "query_version": {},
    "query_networks": {},
    "query_options": {},
    "terminate": {"terminate_id": {"type": "string", "maxLength": MOST_ID_CHARACTERS}, "turns": _TURNS},
    "terminate_all": {"turns": _TURNS},
    "clear_cache": {},
}
"""Fields of each action besides id and action."""


def _query() -> Schema:
    properties: Schema = {"id": _ref("id")}
    properties |= {name: setting_schema(field) for name, field in settings_of(Fields).items()}
    properties["moves"]["maxItems"] = MOST_MOVES
    properties["analyze_turns"] = {
        "description": "numbers of moves made before the positions to analyse; by default all moves",
        "type": "array",
        "items": COUNT,
        "minItems": 1,
        "uniqueItems": True,
    }
    properties["priorities"] = {
        "description": "of each of analyze_turns, instead of priority",
        "type": "array",
        "items": {"type": "integer", "minimum": -(10**9), "maximum": 10**9},
    }
    for name, text in (("avoid_moves", "that are not searched"), ("allow_moves", "that alone are searched")):
        properties[name] = {"description": f"moves {text}", **_ref("restrictions")}
    properties["options"] = {
        "description": "options of the engine for this query",
        "type": "object",
        "properties": {name: setting_schema(option) for name, option in QUERY_OPTIONS.items()},
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": properties,
        "required": ["id"],
        "not": {"required": ["action"]},
        "dependentRequired": {"priorities": ["analyze_turns"]},
        "dependentSchemas": {"priorities": {"not": {"required": ["priority"]}}},
    }


def setting_schema(setting: Setting) -> Schema:
    """Return the schema of a field or option."""
    described: Schema = {"description": setting.help}
    if isinstance(setting.default, bool):
        return described | FLAG
    if setting.is_number:
        kind = "number" if isinstance(setting.default, float) else "integer"
        return described | {"type": kind, "minimum": setting.low, "maximum": setting.high}
    if isinstance(setting.default, tuple):
        return described | {"type": "array", "items": TEXT}
    return described | ({"enum": list(setting.choices)} if setting.choices else TEXT)


def _restriction() -> Schema:
    return {
        "type": "object",
        "properties": {
            "moves": _moves(),
            "player": {"description": "by default the side to move in the position", "enum": list(PLAYERS)},
            "until_depth": {
                "description": "moves made less than so many plies after the position; by default 1",
                "type": "integer",
                "minimum": 1,
                "maximum": MOST_DEPTH,
            },
        },
        "required": ["moves"],
        "additionalProperties": False,
    }


def _restrictions() -> Schema:
    objects = {"type": "array", "items": _ref("restriction"), "maxItems": MOST_RESTRICTIONS}
    return {"anyOf": [_moves(), objects]}


def _moves() -> Schema:
    move = {
        "description": "UCI notation or SAN",
        "type": "string",
        "minLength": 2,
        "maxLength": MOST_CHARACTERS,
    }
    return {"type": "array", "items": move, "minItems": 1, "maxItems": MOST_RESTRICTED_MOVES}


def _action(name: str, more: Mapping[str, Schema], *, closed: bool = False) -> Schema:
    """Return an action, or its answer (closed), with its fields besides id and name."""
    made = _object({"id": _ref("id"), "action": {"const": name}, **more})
    made["required"] = [field for field in made["properties"] if field != "turns"]
    if not closed:
        del made["additionalProperties"]
    return made


# -- answers -----------------------------------------------------------------------------------------


def _turn() -> Schema:
    return {"id": _ref("id"), "turn": COUNT, "during_search": {"const": False}}


def _analysis() -> Schema:
    return _object(
        {
            **_turn(),
            "during_search": FLAG,
            "fen": TEXT,
            "key": {"description": "equal for positions that the rules of repetition call the same", **KEY},
            "side_to_move": {"enum": list(PLAYERS)},
            "game_over": _object({"result": {"enum": ["white_won", "black_won", "draw"]}, "reason": TEXT}),
            "terminated": {"const": True},
            "ended_early": TEXT,
            "root": _ref("root"),
            "search": _object(
                {
                    "playouts": COUNT,
                    "evaluations": COUNT,
                    "depth": COUNT,
                    "selective_depth": COUNT,
                    "seconds": {"type": "number", "minimum": 0},
                    "tablebase_hits": COUNT,
                    "tree_full": FLAG,
                }
            ),
            "moves": {"type": "array", "items": _ref("line")},
            "policy": {"type": "object", "propertyNames": MOVE, "additionalProperties": SHARE},
            "statistics": {"type": "array", "items": _ref("statistics")},
            "q": RESULT,
            "wdl": _ref("wdl"),
            "moves_left": {"type": "number"},
            "logits": {"type": "object", "propertyNames": MOVE, "additionalProperties": {"type": "number"}},
        },
        optional=(
            *("game_over", "terminated", "ended_early", "root", "search", "moves", "policy", "statistics"),
            *("q", "wdl", "moves_left", "logits"),
        ),
    )


def _root() -> Schema:
    own = {"q": RESULT, "wdl": _or_null(_ref("wdl")), "moves_left": _or_null({"type": "number"})}
    return _object(
        {
            "visits": COUNT,
            "q": RESULT,
            "wdl": _ref("wdl"),
            "moves_left": {"type": "number"},
            "proven": {"enum": [-1, 0, 1]},
            "network": _object(own),
        },
        optional=("proven", "network"),
    )


def _line() -> Schema:
    return _object(
        {
            "move": _ref("move"),
            "order": COUNT,
            "visits": COUNT,
            "q": RESULT,
            "wdl": _ref("wdl"),
            "lcb": {
                "description": "q less the doubt of the choice of moves; may lie beyond -1 and 1",
                "type": "number",
            },
            "score": WHOLE,
            "moves_left": {"type": "number"},
            "prior": SHARE,
            "mate": WHOLE,
            "tablebase": {"enum": [-1, 0, 1]},
            "pv": {"type": "array", "items": _ref("move"), "minItems": 1},
            "san": {"description": "pv in SAN", "type": "array", "items": TEXT},
            "pv_visits": {"type": "array", "items": COUNT},
        },
        optional=("lcb", "mate", "tablebase", "san", "pv_visits"),
    )


def _statistics() -> Schema:
    return _object(
        {
            "move": _ref("move"),
            "visits": COUNT,
            "prior": SHARE,
            "wl": _or_null(RESULT),
            "d": _or_null(SHARE),
            "moves_left": _or_null({"type": "number"}),
            "q": {"type": "number"},
            "deviation": _or_null(SHARE),
            "u": {"type": "number"},
            "s": {"type": "number"},
            "v": _or_null(RESULT),
            "bounds": {"type": "array", "items": {"enum": [-1, 0, 1]}, "minItems": 2, "maxItems": 2},
        }
    )


def _problem(kind: str, more: Schema) -> Schema:
    return _object({"id": _ref("id"), **more, "field": TEXT, kind: TEXT}, optional=("id", "field", *more))


def _action_answers() -> Mapping[str, Mapping[str, Schema]]:
    network = {
        "name": TEXT,
        "content_hash": TEXT,
        "backend": TEXT,
        "device": TEXT,
        "input_format": COUNT,
        "policy_head": TEXT,
        "value_head": TEXT,
        "has_wdl": FLAG,
        "has_moves_left": FLAG,
        "recommended_batch": COUNT,
    }
    option = {
        "name": TEXT,
        "uci_name": TEXT,
        "help": TEXT,
        "value": {},
        "low": {"type": "number"},
        "high": {"type": "number"},
        "choices": {"type": "array", "items": TEXT},
    }
    return {
        **ACTION_FIELDS,
        "query_version": {
            "name": TEXT,
            "version": TEXT,
            "git_hash": _or_null({"type": "string", "pattern": "^[0-9a-f]{40}$"}),
            "format": {"const": FORMAT},
        },
        "query_networks": {
            "ready": FLAG,
            "state": {"enum": list(STATES)},
            "networks": {"type": "array", "items": _object(network)},
        },
        "query_options": {
            "options": {"type": "array", "items": _object(option, optional=("low", "high", "choices"))}
        },
    }


# -- parts ---------------------------------------------------------------------------------------------------


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(properties: Mapping[str, Schema], optional: tuple[str, ...] = ()) -> Schema:
    """Return an object with exactly these fields, all required except the optional ones."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }
