# SPDX-License-Identifier: GPL-3.0-or-later
"""The JSON Schema of messages: the file is the one that the tables make, and says what the parser takes."""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.apps.analysis import restrictions
from engine.apps.analysis.actions import ACTIONS, FORMAT, STATES
from engine.apps.analysis.errors import QueryError
from engine.apps.analysis.messages import MOST_ID_CHARACTERS
from engine.apps.analysis.query import NAMES, QUERY_OPTIONS, read_query
from engine.apps.analysis.schema import schema, schema_text
from engine.options import Options
from engine.search.notation import MOST_CHARACTERS
from tests.paths import REPOSITORY

MESSAGE = jsonschema.Draft202012Validator(schema())

FREE = [name for name in NAMES if name not in ("id", "fen", "moves", "analyze_turns", "priorities")]
"""Fields that stand for themselves."""

NUMBERS = st.one_of(
    st.integers(-3, 3), st.integers(), st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False)
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    NUMBERS,
    st.sampled_from(["", "startpos", "white", "black", "side_to_move", "absolute", "e2e4"]),
    st.lists(st.one_of(st.integers(-1, 2), st.sampled_from(["e2e4", "e4"])), max_size=3),
    st.dictionaries(st.sampled_from(["moves", "player", "cpuct", "until_depth"]), NUMBERS, max_size=2),
)
ENTRIES = st.fixed_dictionaries(
    {"moves": st.lists(st.sampled_from(["e2e4", "e7e8q", "e4"]), max_size=2)},
    optional={"player": st.sampled_from(["white", "black", "red"]), "until_depth": NUMBERS},
)


def is_taken(message: dict[str, Any]) -> bool:
    """Whether the parser takes a query, the game in it left aside."""
    try:
        read_query(message, "a", Options(), 800)
    except QueryError as error:
        # The rules of chess are not the schema's.
        return error.field in ("fen", "moves", "analyze_turns") and "is a" not in str(error)
    return True


def test_the_file_is_the_one_that_the_tables_make() -> None:
    path = REPOSITORY / "engine" / "apps" / "analysis" / "schema.json"
    assert path.read_text("utf-8") == schema_text(), (
        "run_engine.py analysis --schema > engine/apps/analysis/schema.json"
    )
    jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text("utf-8")))


def test_the_schema_has_the_names_and_limits_of_the_parser() -> None:
    parts = schema()["$defs"]
    query = parts["query"]
    assert list(query["properties"]) == list(NAMES)
    assert set(query["properties"]["options"]["properties"]) == set(QUERY_OPTIONS)
    actions = {each["properties"]["action"]["const"]: each["properties"] for each in parts["action"]["anyOf"]}
    assert {name: tuple(fields)[2:] for name, fields in actions.items()} == {
        name: fields for name, (fields, _) in ACTIONS.items()
    }
    assert parts["id"]["maxLength"] == MOST_ID_CHARACTERS
    entry, (moves, entries) = parts["restriction"]["properties"], parts["restrictions"]["anyOf"]
    assert moves == entry["moves"] and moves["items"]["maxLength"] == MOST_CHARACTERS
    assert entry["until_depth"]["maximum"] == restrictions.MOST_DEPTH
    assert (entries["maxItems"], moves["maxItems"]) == (
        restrictions.MOST_RESTRICTIONS,
        restrictions.MOST_MOVES,
    )
    assert entry["player"]["enum"] == [*restrictions.PLAYERS]
    version, networks = (each["properties"] for each in parts["action_answer"]["anyOf"][:2])
    assert version["format"]["const"] == FORMAT and networks["state"]["enum"] == [*STATES]


@settings(deadline=None)
@given(st.sampled_from(FREE), VALUES)
def test_the_schema_takes_what_the_parser_takes(name: str, value: Any) -> None:
    message = {"id": "a", "moves": ["e2e4"], "analyze_turns": [0, 1], name: value}
    assert MESSAGE.is_valid(message) == is_taken(message)


@given(st.sampled_from(["avoid_moves", "allow_moves"]), st.lists(ENTRIES, max_size=1))
def test_the_schema_takes_the_restrictions_that_the_parser_takes(name: str, entries: list[Any]) -> None:
    message = {"id": "a", name: entries}
    assert MESSAGE.is_valid(message) == is_taken(message)


@given(st.sampled_from(sorted(QUERY_OPTIONS)), VALUES)
def test_the_schema_takes_the_options_that_the_parser_takes(name: str, value: Any) -> None:
    if QUERY_OPTIONS[name].reader is not None:
        return
    message = {"id": "a", "options": {name: value}}
    assert MESSAGE.is_valid(message) == is_taken(message)


@pytest.mark.parametrize(
    ("message", "valid"),
    [
        ({"id": "a"}, True),
        ({}, False),
        ({"id": 3}, False),
        ({"id": "a", "unknown": 1}, True),
        ({"id": "a", "analyze_turns": [0], "priorities": [1]}, True),
        ({"id": "a", "priorities": [1]}, False),
        ({"id": "a", "analyze_turns": [0], "priorities": [1], "priority": 1}, False),
        ({"id": "a", "action": "query_version"}, True),
        ({"id": "a", "action": "explode"}, False),
        ({"id": "a", "action": "terminate"}, False),
        ({"id": "a", "action": "terminate", "terminate_id": "b", "turns": [1]}, True),
        ({"id": "a", "action": "terminate_all"}, True),
    ],
)
def test_messages(message: dict[str, Any], valid: bool) -> None:
    assert MESSAGE.is_valid(message) == valid
