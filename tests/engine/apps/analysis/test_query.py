# SPDX-License-Identifier: GPL-3.0-or-later
"""Queries from JSON to plain data: what is taken, what is refused, and which field is blamed."""

from typing import Any

import pytest

from engine.apps.analysis.errors import QueryError
from engine.apps.analysis.query import QUERY_OPTIONS, Query, read_query
from engine.options import Options


def read(**fields: Any) -> Query:
    query, warnings = read_query({"id": "a", **fields}, "a", Options(), 800)
    assert warnings == []
    return query


def test_a_query_of_an_id_alone_is_the_initial_position() -> None:
    query = read()
    assert query.turns == (0,)
    assert query.game(0).fen().startswith("rnbqkbnr/pppppppp")
    assert query.limits.nodes == 800
    assert query.options.smart_pruning_factor == 0


def test_a_game_is_analysed_at_its_turns() -> None:
    query = read(moves=["e2e4", "e7e5", "g1f3"], analyze_turns=[3, 0, 2], priorities=[5, 1, 9])
    assert query.turns == (3, 0, 2)
    assert query.priorities == (5, 1, 9)
    assert [query.game(turn).moves() for turn in (0, 2)] == [[], ["e2e4", "e7e5"]]
    assert read(moves=["e2e4", "e7e5"]).turns == (2,)
    assert read(moves=["e2e4"], analyze_turns=[0, 1], priority=7).priorities == (7, 7)


def test_limits_may_be_combined_and_replace_the_default() -> None:
    limits = read(movetime=250, depth=9, mate=3).limits
    assert (limits.nodes, limits.movetime_ms, limits.depth, limits.mate) == (None, 250, 9, 3)
    assert read(nodes=5).limits.nodes == 5
    infinite = read(infinite=True).limits
    assert infinite.infinite
    assert infinite.nodes is None


def test_options_are_the_querys_own() -> None:
    query = read(options={"cpuct": 3, "smart_pruning_factor": 1.33}, multipv=4, include_statistics=True)
    assert query.options.cpuct == 3
    assert query.options.smart_pruning_factor == 1.33
    assert query.options.multipv == 4
    assert query.options.log_live_stats


def test_the_engines_options_hold_where_a_query_says_nothing() -> None:
    engine = Options(multipv=3, cpuct=2.5, chess960=True)
    query, _ = read_query({"id": "a"}, "a", engine, 10)
    assert (query.fields.multipv, query.options.cpuct, query.fields.chess960) == (3, 2.5, True)


def test_nobody_plays_in_an_analysis() -> None:
    assert read().options.contempt_mode == "disable"
    chosen = read(options={"contempt_mode": "white_side_analysis"})
    assert chosen.options.contempt_mode == "white_side_analysis"


@pytest.mark.parametrize(
    "name", ["weights", "backend", "evaluator", "threads", "hash", "tree_memory", "syzygy_path", "log_file"]
)
def test_files_evaluators_and_memory_are_not_a_querys_to_choose(name: str) -> None:
    assert name not in QUERY_OPTIONS
    with pytest.raises(QueryError, match="to set"):
        read(options={name: getattr(Options(), name)})


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("fen", 3, "fen is a text"),
        ("fen", "8/8/8/8/8/8/8/8 w - - 0 1", "king"),
        ("fen", "7k/8/5K1Q/8/8/8/8/8 w - - 0 1", "Black is in check"),
        ("moves", "e2e4", "moves is a list of texts"),
        ("moves", ["e2e4", "e2e4"], "move 2"),
        ("moves", [1], "moves is a list of texts"),
        ("chess960", 1, "chess960 is true or false"),
        ("analyze_turns", [1], "no turn 1"),
        ("analyze_turns", [-1], "no turn -1"),
        ("analyze_turns", [], "nothing to analyse"),
        ("analyze_turns", [0, 0], "twice"),
        ("analyze_turns", [0.5], "whole numbers"),
        ("analyze_turns", [True], "whole numbers"),
        ("analyze_turns", 0, "whole numbers"),
        ("analyze_turns", [float("inf")], "whole numbers"),
        ("priorities", [1], "each of analyze_turns"),
        ("nodes", -1, "nodes is a whole number"),
        ("nodes", 10**12, "nodes is a whole number"),
        ("nodes", 1.5, "nodes is a whole number"),
        ("nodes", "800", "nodes is a whole number"),
        ("nodes", True, "nodes is a whole number"),
        ("nodes", float("nan"), "nodes is a whole number"),
        ("movetime", float("inf"), "movetime is a whole number"),
        ("multipv", 0, "multipv is a whole number from 1 to 500"),
        ("report_every", -1, "report_every is a number"),
        ("point_of_view", "red", "side_to_move, white, black"),
        ("options", [], "options is an object"),
        ("options", {"cpuct": "high"}, "CPuct is a number"),
        ("options", {"cpcut": 1}, "did you mean 'cpuct'"),
        ("avoid_moves", "e2e4", "list of moves or of objects"),
        ("avoid_moves", ["e4e"], "no move"),
        ("moves", [None], "null"),
        ("nodes", True, "not true"),
        ("moves", ["e4", "Ke3"], "move 'Ke3': it is illegal"),
        ("moves", ["xx"], "is no move"),
        ("avoid_moves", [{"moves": []}], "1 to 1000 moves"),
        ("avoid_moves", [{"moves": ["e2e4"], "player": "red"}], "white or black"),
        ("avoid_moves", [{"moves": ["e2e4"], "until_depth": 0}], "until_depth"),
        ("avoid_moves", [{"moves": ["e2e4"], "depth": 2}], "no such key"),
        ("avoid_moves", ["e2e4", {"moves": ["e2e4"]}], "not an object"),
        ("allow_moves", [{"moves": ["e2e4"]}, {"moves": ["d2d4"]}], "one object for each player"),
    ],
)
def test_query_error_names_the_field(field: str, value: Any, message: str) -> None:
    with pytest.raises(QueryError, match=message) as raised:
        read(**{field: value})
    assert raised.value.field == field


def test_priority_and_priorities_exclude_each_other() -> None:
    with pytest.raises(QueryError, match="exclude each other"):
        read(analyze_turns=[0], priority=1, priorities=[1])


def test_a_field_that_nobody_knows_is_reported_of_and_not_used() -> None:
    query, warnings = read_query({"id": "a", "nodez": 3, "comment": {}}, "a", Options(), 800)
    assert query.limits.nodes == 800
    (warning,) = warnings
    assert warning.field == "nodez"
    assert str(warning) == (
        "there are no fields 'nodez', 'comment', they are not used; did you mean 'nodes'?"
    )


def test_thousands_of_unknown_fields_are_one_short_warning() -> None:
    unknown = {f"field{number:04}" + 100 * "x": 1 for number in range(2000)}
    _, (warning,) = read_query({"id": "a", **unknown}, "a", Options(), 800)
    assert str(warning).endswith("and 1,997 more, they are not used")
    assert len(str(warning)) < 300


def test_an_infinite_search_has_no_limits() -> None:
    _, (warning,) = read_query({"id": "a", "infinite": True, "nodes": 5, "depth": 3}, "a", Options(), 800)
    assert (warning.field, str(warning)) == (
        "nodes",
        "an infinite search has no limits: 'nodes', 'depth' not used",
    )


def test_nodes_0_is_no_search_and_uses_no_limits() -> None:
    assert not read(nodes=0).searched
    assert read(movetime=5).searched
    fields = {"nodes": 0, "movetime": 5, "infinite": True, "avoid_moves": ["e4"], "depth": 0}
    query, (warning,) = read_query({"id": "a", **fields}, "a", Options(), 800)
    assert (query.searched, query.restrictions == ()) == (False, False)
    assert (warning.field, str(warning)) == (
        "movetime",
        "nodes 0 is without a search: 'movetime', 'infinite', 'avoid_moves' not used",
    )


def test_capturable_king_is_refused_unless_nodes_are_0() -> None:
    fields = {"id": "a", "fen": "4k3/4R3/8/8/8/8/8/4K3 w - - 0 1"}
    query, (warning,) = read_query({**fields, "nodes": 0}, "a", Options(), 800)
    assert not query.game(0).playable
    assert warning.field == "fen" and "could take the king" in str(warning)
    with pytest.raises(QueryError):
        read_query(fields, "a", Options(), 800)


@pytest.mark.parametrize(
    ("fen", "moves", "uci"),
    [
        ("startpos", ["e4", "e5", "Nf3", "Nc6", "Bb5", "a6", "Bxc6", "dxc6", "O-O"], "e1g1"),
        ("startpos", ["E2E4", "E7E5", "g1f3"], "g1f3"),
        ("4k3/8/8/8/8/8/8/R3K2R w KQ - 0 1", ["0-0-0+"], "e1c1"),
        ("4k3/P7/8/8/8/8/8/4K3 w - - 0 1", ["a8=Q+"], "a7a8q"),
        ("4k3/P7/8/8/8/8/8/4K3 w - - 0 1", ["A7A8N"], "a7a8n"),
        ("4k3/8/8/8/8/8/8/R3K2R w - - 0 1", ["Rad1"], "a1d1"),
        ("4k3/8/8/R7/8/8/8/R3K3 w - - 0 1", ["R1a4"], "a1a4"),
    ],
)
def test_moves_may_be_in_san_or_upper_case(fen: str, moves: list[str], uci: str) -> None:
    assert read(fen=fen, moves=moves).fields.moves[-1] == uci


def test_castling_in_chess960_is_king_takes_rook() -> None:
    query = read(fen="4k3/8/8/8/8/8/8/1R2K2R w HB - 0 1", chess960=True, moves=["O-O-O"])
    assert query.fields.moves == ("e1b1",)


@pytest.mark.parametrize(
    ("move", "complaint"), [("Rd1", "several legal moves fit"), ("Nd1", "illegal"), ("e.p.", "no move")]
)
def test_san_that_names_no_move_is_refused(move: str, complaint: str) -> None:
    with pytest.raises(QueryError, match=complaint):
        read(fen="4k3/8/8/8/8/8/4K3/R6R w - - 0 1", moves=[move])


def test_moves_to_avoid_that_are_illegal_are_reported_of() -> None:
    fields = {"moves": ["e4"], "analyze_turns": [0, 1], "avoid_moves": ["Nf3", "e5", "e2e5", "Nd4"]}
    query, (warning,) = read_query({"id": "a", **fields}, "a", Options(), 800)
    assert query.restrictions[0].moves == ("g1f3", "e7e5", "e2e5")
    assert (warning.field, str(warning)) == (
        "avoid_moves",
        "avoid_moves: 'e2e5', 'Nd4' not used: illegal in all positions to analyse",
    )
    deeper = {"moves": ["e7e5"], "player": "black", "until_depth": 2}
    assert read(avoid_moves=[deeper]).restrictions[0].moves == ("e7e5",)


def test_a_mate_excludes_restrictions_below_the_position() -> None:
    assert read(mate=2, avoid_moves=["e2e4"]).limits.mate == 2
    with pytest.raises(QueryError, match="until_depth is 1") as raised:
        read(mate=2, avoid_moves=[{"moves": ["e2e4"], "until_depth": 2}])
    assert raised.value.field == "mate"
