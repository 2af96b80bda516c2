# SPDX-License-Identifier: GPL-3.0-or-later
"""Fields of the API's requests, and the OpenAPI document made from them and the schema of the analysis."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import Any

from engine.apps.analysis.schema import IDENTITY, schema, setting_schema
from engine.search.strength.levels import LEAST_ELO, MOST_ELO
from protocol.common.settings.spec import SettingsGroup, setting, settings_of
from protocol.common.version import __version__

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
    data: str = setting("", "instead of pgn: the bytes of a file in base64, in any encoding or gzip")
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
    board: str = setting("", "identity of the stored game that is reviewed")


@dataclass(frozen=True, slots=True)
class RunFields(SettingsGroup):
    """Whether a review runs."""

    noun = "field"

    running: bool = setting(True, "whether it runs: false stops it, true resumes it")


@dataclass(frozen=True, slots=True)
class Operation:
    """handler: name of the method that answers, whose docstring is the summary. answers: schema by status,
    None for a text. fields: of the body, if they are a group; `required` ones must be given. body: its
    schema otherwise. codes: further error statuses. summary: without a handler. charged: counts as a request
    of its client.
    """

    handler: str
    answers: Mapping[int, Schema | None]
    fields: type[SettingsGroup] | None = None
    required: tuple[str, ...] = ()
    body: Schema | None = None
    codes: tuple[int, ...] = ()
    summary: str = ""
    charged: bool = True

    @property
    def takes_body(self) -> bool:
        return self.fields is not None or self.body is not None


TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
STATES = {"enum": ["waiting", "running", "done", "failed", "stopped"]}
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


def _texts(*names: str) -> Schema:
    return dict.fromkeys(names, TEXT)


def _said(description: str, schema: Schema) -> Schema:
    return {"description": description, **schema}


def _map(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def _schemas() -> dict[str, Schema]:
    end, skipped = _object(_texts("result", "reason")), _object(_texts("place", "reason"))
    position = {"fen": TEXT, "turn": {"enum": ["white", "black"]}, "ply": COUNT}
    position |= {"legal": _said("SAN by UCI", _map(TEXT)), "check": _or_null(TEXT), "end": _or_null(end)}
    position["flag"] = _said("result if the side to move runs out of time", TEXT)
    position["claim"] = _or_null(_said("draw that a player may claim", TEXT))
    position["corrections"] = _said("of the FEN", _list(TEXT))
    parent = _said("index of the node before; -1 is the start", {"type": "integer", "minimum": -1})
    node = {"parent": parent, **_texts("uci", "san", "fen", "comment"), "nags": _list(COUNT)}
    node["before"] = _said("comment before the move", TEXT)
    output = {"q": NUMBER, "wdl": _ref("wdl"), "moves_left": NUMBER, "error": TEXT}
    output |= dict.fromkeys(("policy", "logits"), _map(NUMBER))
    row = {"number": COUNT, **_texts("white", "black", "result"), "accuracy": _list(_or_null(NUMBER))}
    row |= {"opening": _or_null(TEXT), "searched": COUNT, "asked": COUNT}
    tree = {"headers": _map(TEXT), "chess960": {"type": "boolean"}, **_texts("fen", "comment")}
    tree |= {"nodes": _list(_ref("node")), "faults": _list(TEXT)}
    job = {**_texts("id", "title", "reason"), "state": STATES, "done": COUNT, "total": COUNT}
    job |= {"games": _list(_object(row)), "skipped": _list(skipped)}
    share = {"move": MOVE, "san": TEXT, "share": NUMBER}
    return {
        "error_answer": _object({"error": TEXT}),
        "position": _object(position),
        "made_move": _object(_texts("uci", "san", "fen")),
        "node": _object(node, ("parent", "uci")),
        "output": _object(output, ()),
        "tree": _object(tree),
        "queries": _object({"queries": {"type": "array", "items": _ref("query"), "minItems": 1}}),
        "evaluated_position": {"anyOf": [TEXT, _ref("placed_position")]},
        "placed_position": _group(PositionFields),
        "people": _object({"network": TEXT, "elo": COUNT, "moves": _list(_object(share))}),
        "job": _object(job),
    }


@cache
def operations() -> dict[tuple[str, str], Operation]:
    """Return the operations of the API by method and path."""
    position = _group(PositionFields)
    given = _said("FENs, or objects with `fen`, `moves` and `chess960`", _list(_ref("evaluated_position")))
    opening = _said("ECO code and name of the last named position", TEXT)
    shown = _schemas()["position"]["properties"] | {"line": _list(_ref("made_move")), "opening": opening}
    listed = _list(_object({"number": COUNT, "players": TEXT}))
    text = _said("games of `data`", TEXT)
    networks = next(
        each for each in schema()["$defs"]["action_answer"]["anyOf"]
        if each["properties"]["action"]["const"] == "query_networks"
    )  # fmt: skip
    known = {name: each for name, each in networks["properties"].items() if name not in ("id", "action")}
    nodes = _said("moves, as `pgn/read` returns them", _list(_ref("node")))
    headers = _said("tags of the PGN", _map(TEXT))
    start = {name: each for name, each in position["properties"].items() if name != "moves"}
    writing = _object({**start, "nodes": nodes, "headers": headers, "comment": TEXT}, ("nodes",))
    move = _object({"move": MOVE, "san": TEXT, "position": _ref("position")})
    read = _object({"games": listed, "game": _ref("tree"), "text": text}, ("games", "game"))
    answers, outputs = (
        _object({"answers": _list(_ref("answer"))}),
        _object({"positions": _list(_ref("output"))}),
    )
    stored, game = _list(_object(_texts("identity", "title"))), _object(_texts("title", "state"))
    kept = _list(_object({"id": TEXT, "title": TEXT, "state": STATES}))
    query = {"anyOf": [_ref("queries"), _ref("query")]}
    evaluated = _group(EvaluateFields, ("positions",), positions=given)
    busy, job, whole = (429, 502, 503), {200: _ref("job")}, {200: {"type": "object"}}
    found: dict[tuple[str, str], Operation] = {
        ("post", "analyse"): Operation("analyse", {200: answers}, body=query, codes=(429, 503)),
        ("post", "evaluate"): Operation("evaluate", {200: outputs}, body=evaluated, codes=busy),
        ("get", "networks"): Operation("networks", {200: _object(known)}),
        ("post", "position"): Operation("position", {200: _object(shown)}, PositionFields),
        ("post", "move"): Operation("move", {200: move}, MoveFields, codes=busy),
        ("post", "human"): Operation("human", {200: _ref("people")}, HumanFields, codes=busy),
        ("post", "pgn/read"): Operation("read_pgn", {200: read}, PgnFields),
        ("post", "pgn/write"): Operation("write_pgn", {200: _object({"pgn": TEXT})}, body=writing),
        ("get", "games"): Operation("list_games", {200: _object({"games": stored})}),
        ("get", "games/{identity}"): Operation("read_game", {200: game}, codes=(422,)),
        ("put", "games/{identity}"): Operation("keep_game", {204: {}}, GameFields, ("state",)),
        ("delete", "games/{identity}"): Operation("delete_game", {204: {}}, codes=(422,)),
        ("post", "review"): Operation("start_review", {202: _ref("job")}, ReviewFields, ("pgn",)),
        ("get", "review"): Operation("list_reviews", {200: _object({"reviews": kept})}),
        ("get", "review/{identity}"): Operation("review", job, codes=(404, 422)),
        ("put", "review/{identity}"): Operation("go_on", job, RunFields, codes=(404,)),
        ("delete", "review/{identity}"): Operation("delete_review", {204: {}}, codes=(404, 422)),
        ("get", "review/{identity}/games/{number}"): Operation("reviewed_game", whole, codes=(404, 422)),
    }
    return {(method, f"/api/v1/{path}"): each for (method, path), each in found.items()} | {
        ("get", "/review/{identity}/games.pgn"): Operation("review_pgn", {200: None}, codes=(404, 422)),
        ("get", "/live"): Operation("live", {200: None}, charged=False),
        ("get", "/ready"): Operation("ready", {200: None, 503: None}, charged=False),
        ("get", "/metrics"): Operation("", {200: None}, summary="Return the metrics for Prometheus."),
    }


@cache
def document(handlers: type) -> Schema:
    """Return the OpenAPI 3.1 document. handlers: the class with the handlers of `operations`.

    Generators of clients need names for operations and for objects of requests and answers, and no constants.
    """
    schemas = {**schema()["$defs"], **_schemas()}
    schemas["query"] = {**schemas["query"], "required": []}
    schemas["answer"] = {"anyOf": [_ref(name) for name in ("analysis", "no_results", "error", "warning")]}
    paths: Schema = {}
    for (method, path), each in operations().items():
        summary = each.summary or str(getattr(handlers, each.handler).__doc__)
        paths.setdefault(path, {})[method] = _described(path, method, each, schemas)
        paths[path][method]["summary"] = re.sub(r"\s+", " ", summary).partition(" Raises ")[0].strip()
    paths = _plain(paths)
    used: Schema = {}
    waiting = _names_in(paths)
    while waiting:
        name = waiting.pop()
        if name not in used:
            used[name] = _plain(schemas[name])
            waiting |= _names_in(used[name])
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Wavefront",
            "version": __version__,
            "description": "Analysis, evaluation, review and games by lc0 networks.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(used.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _described(path: str, method: str, operation: Operation, schemas: Schema) -> Schema:
    """Return the description of an operation. schemas: gets its objects by name."""
    name = "_".join([method, *(word for word in re.findall(r"\w+", path) if word not in ("api", "v1"))])

    def named(kind: str, described: Schema) -> Schema:
        if not described.keys() & {"properties", "anyOf"}:
            return described
        schemas[f"{name}_{kind}"] = described
        return _ref(f"{name}_{kind}")

    answers: Schema = {}
    body = _group(operation.fields, operation.required) if operation.fields else operation.body
    for status, described in operation.answers.items():
        answer = described and named("answer", described)
        content = {"application/json": {"schema": answer}} if answer else {"text/plain": {"schema": TEXT}}
        if path.endswith(".pgn"):
            content = {"application/x-chess-pgn": {"schema": TEXT}}
        if path == "/api/v1/analyse":
            content["application/x-ndjson"] = {"schema": _ref("answer")}
        answers[str(status)] = {"description": "The answer."} | ({"content": content} if answer != {} else {})
    codes = (*operation.codes, *((400, 413, 415, 422) if body else ()))
    if path.startswith("/api"):
        codes = (*codes, 401, 403, 503, *((429,) if body else ()))
    for code in sorted(set(codes)):
        content = {"application/json": {"schema": _ref("error_answer")}}
        headers = {"Retry-After": {"schema": TEXT, "description": "seconds"}} if code in (429, 503) else {}
        answers.setdefault(
            str(code),
            {"description": HTTPStatus(code).phrase, "content": content}
            | ({"headers": headers} if headers else {}),
        )
    made: Schema = {"operationId": name, "responses": answers}
    if body:
        content = {"application/json": {"schema": named("request", body)}}
        made["requestBody"] = {"required": True, "content": content}
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    if names:
        kinds = {"number": COUNT, "identity": {**IDENTITY, "pattern": "^[A-Za-z0-9_-]+$"}}
        made["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": kinds[name]} for name in names
        ]
    return made


def _plain(value: Any) -> Any:
    """Return a schema with references to where OpenAPI has definitions, and with types for constants."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "const" in value:
        rest = {name: each for name, each in value.items() if name != "const"}
        kind = {bool: "boolean", int: "integer", str: "string"}[type(value["const"])]
        return {**rest, "type": kind, **({} if kind == "boolean" else {"enum": [value["const"]]})}
    return {
        name: each.replace("#/$defs/", "#/components/schemas/") if name == "$ref" else _plain(each)
        for name, each in value.items()
    }


def _names_in(value: Any) -> set[str]:
    """Return the schemas that a schema refers to."""
    return set(re.findall(r"#/components/schemas/(\w+)", json.dumps(value)))
