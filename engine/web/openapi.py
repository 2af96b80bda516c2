# SPDX-License-Identifier: GPL-3.0-or-later
"""Fields of the API's requests, and the OpenAPI document made from them and the schema of the analysis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from engine.analysis.schema import IDENTITY, schema, setting_schema
from engine.search.levels import LEAST_ELO, MOST_ELO
from protocol.host.version import __version__
from protocol.settings.spec import SettingsGroup, setting, settings_of

Schema = dict[str, Any]

MOST_NODES, MOST_REVIEW_NODES = 100_000, 25_000
"""Maximum nodes of a move, and of a reviewed position."""

MOST_MOVES = 3000
"""Maximum moves of a game that is played."""


@dataclass(frozen=True, slots=True)
class PositionFields(SettingsGroup):
    """A position of a game."""

    noun = "field"

    fen: str = setting("startpos", "position that the game starts from: a FEN, or startpos")
    moves: tuple[str, ...] = setting((), "moves of the game from there, SAN or UCI")
    chess960: bool = setting(False, "whether castling is written king takes rook")


@dataclass(frozen=True, slots=True)
class MoveFields(PositionFields):
    """A position in which the engine moves."""

    elo: int = setting(
        0, f"level of the engine, {LEAST_ELO} to {MOST_ELO}; 0 is full strength", high=MOST_ELO
    )
    nodes: int = setting(0, "nodes of a move at full strength; 0 chooses", high=MOST_NODES)


@dataclass(frozen=True, slots=True)
class HumanFields(PositionFields):
    """A position, and a rating of people."""

    elo: int = setting(1500, "rating of the players", low=100, high=4000)


@dataclass(frozen=True, slots=True)
class EvaluateFields(SettingsGroup):
    """How positions are evaluated."""

    noun = "field"

    network: str = setting("", "name or content hash of a served network; empty is the engine's")
    include_logits: bool = setting(False, "answer with the logits, too")


@dataclass(frozen=True, slots=True)
class PgnFields(SettingsGroup):
    """A PGN text."""

    noun = "field"

    pgn: str = setting("", "games")
    game: int = setting(0, "number of the game to read; 0 reads the first and lists all", high=10**6)


@dataclass(frozen=True, slots=True)
class GameFields(SettingsGroup):
    """A game of the page, as the page writes it."""

    noun = "field"

    title: str = setting("", "what lists of games show")
    state: str = setting("", "text that only the page reads")


@dataclass(frozen=True, slots=True)
class ReviewFields(SettingsGroup):
    """Games to review."""

    noun = "field"

    pgn: str = setting("", "games")
    nodes: int = setting(400, "nodes of each position", low=1, high=MOST_REVIEW_NODES)


@dataclass(frozen=True, slots=True)
class _Operation:
    """answers: schema by status, None for a text. codes: further error statuses."""

    summary: str
    body: Schema | None
    answers: Mapping[int, Schema | None]
    codes: tuple[int, ...] = ()


TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
MOVE = {"$ref": "#/components/schemas/move"}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _group(kind: type[Any], required: tuple[str, ...] = (), **more: Schema) -> Schema:
    properties = {name: setting_schema(each) for name, each in settings_of(kind).items()}
    if "moves" in properties:
        properties["moves"]["maxItems"] = MOST_MOVES
    return _object({**properties, **more}, required)


def _object(properties: Schema, required: tuple[str, ...] | None = None) -> Schema:
    needed = list(properties if required is None else required)
    return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _schemas() -> dict[str, Schema]:
    end = _object({"result": TEXT, "reason": TEXT})
    position = {
        "fen": TEXT,
        "turn": {"enum": ["white", "black"]},
        "ply": COUNT,
        "legal": {"description": "SAN by UCI", "type": "object", "additionalProperties": TEXT},
        "check": _or_null(TEXT),
        "end": _or_null(end),
        "flag": {"description": "result if the side to move runs out of time", **TEXT},
        "claim": _or_null({"description": "draw that a player may claim", **TEXT}),
        "corrections": {"description": "of the FEN", **_list(TEXT)},
    }
    node = {
        "parent": {
            "description": "index of the node before; -1 is the start",
            "type": "integer",
            "minimum": -1,
        },
        "uci": TEXT,
        "san": TEXT,
        "fen": TEXT,
        "before": {"description": "comment before the move", **TEXT},
        "comment": TEXT,
        "nags": _list(COUNT),
    }
    output = {
        "q": {"type": "number"},
        "wdl": _ref("wdl"),
        "moves_left": {"type": "number"},
        "policy": {"type": "object", "additionalProperties": {"type": "number"}},
        "logits": {"type": "object", "additionalProperties": {"type": "number"}},
        "error": TEXT,
    }
    row = {
        "number": COUNT,
        "white": TEXT,
        "black": TEXT,
        "result": TEXT,
        "accuracy": _list(_or_null({"type": "number"})),
        "opening": _or_null(TEXT),
    }
    skipped = _object({"place": TEXT, "reason": TEXT})
    states = {"enum": ["waiting", "running", "done", "failed", "cancelled"]}
    tree = {"headers": {"type": "object", "additionalProperties": TEXT}, "fen": TEXT}
    tree |= {
        "chess960": {"type": "boolean"},
        "comment": TEXT,
        "nodes": _list(_ref("node")),
        "faults": _list(TEXT),
    }
    share = {"move": MOVE, "san": TEXT, "share": {"type": "number"}}
    return {
        "error_answer": _object({"error": TEXT}),
        "position": _object(position),
        "made_move": _object({"uci": TEXT, "san": TEXT, "fen": TEXT}),
        "node": _object(node, ("parent", "uci")),
        "output": _object(output, ()),
        "tree": _object(tree),
        "people": _object({"network": TEXT, "elo": COUNT, "moves": _list(_object(share))}),
        "job": _object(
            {
                "id": TEXT,
                "state": states,
                "reason": TEXT,
                "done": COUNT,
                "total": COUNT,
                "games": _list(_object(row)),
                "skipped": _list(skipped),
            }
        ),
    }


def _operations() -> dict[str, dict[str, _Operation]]:
    position = _group(PositionFields)
    query = {**schema()["$defs"]["query"], "required": []}
    positions = _list({"anyOf": [TEXT, position]})
    positions["description"] = "FENs, or objects with `fen`, `moves` and `chess960`"
    line = {"line": _list(_ref("made_move"))}
    shown = _schemas()["position"]["properties"]
    listed = _list(_object({"number": COUNT, "players": TEXT}))
    stored = _list(_object({"identity": TEXT, "title": TEXT}))
    networks = next(
        each for each in schema()["$defs"]["action_answer"]["anyOf"]
        if each["properties"]["action"]["const"] == "query_networks"
    )  # fmt: skip
    known = {name: each for name, each in networks["properties"].items() if name not in ("id", "action")}
    nodes = {"description": "moves, as `pgn/read` returns them", **_list(_ref("node"))}
    headers = {"description": "tags of the PGN", "type": "object", "additionalProperties": TEXT}
    writing = {"nodes": nodes, "headers": headers, "comment": TEXT}
    start = {name: each for name, each in position["properties"].items() if name != "moves"}
    many = _object({"queries": {"type": "array", "items": query, "minItems": 1}})
    answers = _object({"answers": _list(_ref("answer"))})
    move = _object({"move": MOVE, "san": TEXT, "position": _ref("position")})
    return {
        "/api/v1/analyse": {
            "post": _Operation(
                "Search one query, or several. With `Accept: application/x-ndjson` the answers are lines, as "
                "they come. The search ends when the client disconnects.",
                {"anyOf": [many, query]},
                {200: answers},
                (429, 503),
            )
        },
        "/api/v1/evaluate": {
            "post": _Operation(
                "Evaluate positions by the network, without a search. `positions` of the answer have `q`, "
                "`wdl`, `moves_left`, `policy` and, if wanted, `logits`, in the same order.",
                _group(EvaluateFields, ("positions",), positions=positions),
                {200: _object({"positions": _list(_ref("output"))})},
                (429, 502, 503),
            )
        },
        "/api/v1/networks": {"get": _Operation("List the networks.", None, {200: _object(known)})},
        "/api/v1/position": {
            "post": _Operation(
                "Return a position with its legal moves.", position, {200: _object(shown | line)}
            )
        },
        "/api/v1/move": {
            "post": _Operation(
                "Play the engine's move at a level.", _group(MoveFields), {200: move}, (429, 502, 503)
            )
        },
        "/api/v1/human": {
            "post": _Operation(
                "Return what people of a rating play.",
                _group(HumanFields),
                {200: _ref("people")},
                (429, 502, 503),
            )
        },
        "/api/v1/pgn/read": {
            "post": _Operation(
                "Read a game of a PGN with its variations.",
                _group(PgnFields, ("pgn",)),
                {200: _object({"games": listed, "game": _ref("tree")})},
            )
        },
        "/api/v1/pgn/write": {
            "post": _Operation(
                "Write a game as PGN.", _object(start | writing, ("nodes",)), {200: _object({"pgn": TEXT})}
            )
        },
        "/api/v1/games": {
            "get": _Operation(
                "List the stored games, the newest first.", None, {200: _object({"games": stored})}
            )
        },
        "/api/v1/games/{identity}": {
            "get": _Operation(
                "Return a stored game.", None, {200: _object({"title": TEXT, "state": TEXT})}, (422,)
            ),
            "put": _Operation("Store a game.", _group(GameFields, ("state",)), {204: {}}),
            "delete": _Operation("Delete a stored game.", None, {204: {}}, (422,)),
        },
        "/api/v1/review": {
            "post": _Operation(
                "Start a review of games.", _group(ReviewFields, ("pgn",)), {202: _ref("job")}, (429,)
            )
        },
        "/api/v1/review/{identity}": {
            "get": _Operation("Return a review's progress.", None, {200: _ref("job")}, (404,)),
            "delete": _Operation("Cancel and forget a review.", None, {204: {}}, (404,)),
        },
        "/review/{identity}/games.pgn": {
            "get": _Operation("Return the annotated games.", None, {200: None}, (404,))
        },
        "/api/v1/review/{identity}/games/{number}": {
            "get": _Operation("Return the review of a game.", None, {200: {"type": "object"}}, (404,))
        },
        "/live": {"get": _Operation("Return 200 while the process runs.", None, {200: None})},
        "/ready": {
            "get": _Operation("Return 200 while the evaluator is ready.", None, {200: None, 503: None})
        },
        "/metrics": {"get": _Operation("Return the metrics for Prometheus.", None, {200: None})},
    }


_ERRORS = {
    400: "The body is not JSON.",
    401: "A token is missing.",
    403: "The token is wrong, or another site's page asked.",
    404: "There is no such thing.",
    413: "The request is too large.",
    415: "The body has another type.",
    422: "A field has an invalid value.",
    429: "A limit of this client is reached: see Retry-After.",
    502: "The evaluator failed.",
    503: "The evaluator is not ready, or the service ends.",
}


@cache
def document() -> Schema:
    """Return the OpenAPI 3.1 document."""
    schemas = {**schema()["$defs"], **_schemas()}
    schemas["query"] = {**schemas["query"], "required": []}
    made = {
        "openapi": "3.1.0",
        "info": {
            "title": "Wavefront",
            "version": __version__,
            "description": "Analysis, evaluation, review and games by lc0 networks.",
        },
        "paths": {
            path: {method: _described(path, each) for method, each in methods.items()}
            for path, methods in _operations().items()
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }
    found: Schema = _relocated(made)
    return found


def _described(path: str, operation: _Operation) -> Schema:
    answers: Schema = {}
    for status, body in operation.answers.items():
        content = {"text/plain": {"schema": TEXT}} if body is None else {"application/json": {"schema": body}}
        if path.endswith(".pgn"):
            content = {"application/x-chess-pgn": {"schema": TEXT}}
        if path == "/api/v1/analyse":
            content["application/x-ndjson"] = {"schema": _ref("answer")}
        answers[str(status)] = {"description": "The answer."} | ({"content": content} if body != {} else {})
    codes = (*operation.codes, *((400, 413, 415, 422) if operation.body else ()))
    if path.startswith("/api"):
        codes = (*codes, 401, 403, 503)
    for code in sorted(set(codes)):
        content = {"application/json": {"schema": _ref("error_answer")}}
        headers = {"Retry-After": {"schema": TEXT, "description": "seconds"}} if code in (429, 503) else {}
        answers.setdefault(
            str(code),
            {"description": _ERRORS[code], "content": content} | ({"headers": headers} if headers else {}),
        )
    made: Schema = {"summary": operation.summary, "responses": answers}
    if operation.body:
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": operation.body}}}
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    if names:
        kinds = {"number": COUNT, "identity": {**IDENTITY, "pattern": "^[A-Za-z0-9_-]+$"}}
        made["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": kinds[name]} for name in names
        ]
    return made


def _relocated(value: Any) -> Any:
    """Return the document with references to the analysis's definitions where OpenAPI has them."""
    if isinstance(value, dict):
        return {
            name: each.replace("#/$defs/", "#/components/schemas/")
            if name == "$ref" and isinstance(each, str)
            else _relocated(each)
            for name, each in value.items()
        }
    return [_relocated(each) for each in value] if isinstance(value, list) else value
