# SPDX-License-Identifier: GPL-3.0-or-later
"""Queries and their answers, with searches on a real evaluator."""

import json
import math
import sys
from typing import Any

import chess
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.apps.analysis.query import NAMES
from engine.apps.analysis.scheduler import QueryScheduler
from engine.apps.analysis.settings import AnalysisSettings
from tests.engine.apps.analysis.recording import RANDOM, Conversation, RecordingClient, scheduler
from tests.programs import suspend
from tests.rounds import rounds

pytestmark = pytest.mark.integration

SEQUENTIAL = RANDOM.changed(minibatch_size=1, batches_in_flight=1)
"""One position at a time: the same search every time."""

VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-2, 6),
        st.floats(allow_subnormal=False),
        st.text(max_size=5),
        st.sampled_from(["a", "e2e4", "d2d4", "startpos", "white", "query_version", "terminate", "cpuct"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(["moves", "player", "until_depth", "cpuct"]), inner, max_size=3),
    ),
    max_leaves=6,
)
MESSAGES = st.dictionaries(
    st.sampled_from([*NAMES, "action", "turns", "terminate_id"]), VALUES, max_size=6
).map(lambda message: {"id": "a", "nodes": 3, **message})

GAME = ["e2e4", "e7e5", "g1f3", "b8c6", "f1b5", "a7a6"]


def test_positions_that_are_the_same_by_the_rules_have_the_same_key(talk: Conversation) -> None:
    orders = ["g1f3", "g8f6", "g2g3"], ["g2g3", "g8f6", "g1f3"], ["g1f3", "g8f6", "b2b3"]
    first, again, other = (
        talk.ask(id=str(number), moves=moves, nodes=1)["key"] for number, moves in enumerate(orders)
    )
    assert first == again != other


def test_an_answer_says_what_the_search_found(talk: Conversation) -> None:
    answer = talk.ask(id="a", moves=["e2e4"], nodes=200, multipv=3)
    assert answer["id"] == "a"
    assert (answer["turn"], answer["during_search"], answer["side_to_move"]) == (1, False, "black")
    board = chess.Board()
    board.push_uci("e2e4")
    assert answer["fen"] == board.fen()
    assert answer["root"]["visits"] == 200
    assert sum(answer["root"]["wdl"]) == pytest.approx(1, abs=1e-4)
    assert -1 <= answer["root"]["network"]["q"] <= 1
    assert [move["order"] for move in answer["moves"]] == [0, 1, 2]
    for move in answer["moves"]:
        assert move["pv"][0] == move["move"]
        assert move["q"] == pytest.approx(move["wdl"][0] - move["wdl"][2], abs=1e-4)
        line = board.copy()
        for played in move["pv"]:
            line.push_uci(played)
    assert not {"policy", "statistics"} & answer.keys()


def test_answer_has_the_included_parts(talk: Conversation) -> None:
    answer = talk.ask(
        id="a", nodes=300, include_policy=True, include_pv_visits=True, include_statistics=True, pv_length=3
    )
    assert len(answer["policy"]) == 20
    assert sum(answer["policy"].values()) == pytest.approx(1, abs=1e-3)
    probabilities = list(answer["policy"].values())
    assert probabilities == sorted(probabilities, reverse=True)
    (best,) = answer["moves"]
    assert len(best["pv"]) == len(best["pv_visits"]) <= 3
    assert best["pv_visits"][0] == best["visits"]
    assert sum(move["visits"] for move in answer["statistics"]) == 299
    assert {move["move"] for move in answer["statistics"]} == answer["policy"].keys()


def test_lines_have_san_when_it_is_asked_for(talk: Conversation) -> None:
    answer = talk.ask(id="a", moves=["e2e4", "e7e5", "g1f3"], nodes=200, multipv=2, include_san=True)
    for line in answer["moves"]:
        board = chess.Board(answer["fen"])
        assert line["san"] == [board.san_and_push(chess.Move.from_uci(move)) for move in line["pv"]]


def test_the_bound_that_the_best_move_is_chosen_by_is_reported(talk: Conversation) -> None:
    options = {"value_choice_deviations": 3, "value_choice_share": 0.05}
    answer = talk.ask(id="a", nodes=500, multipv=20, include_statistics=True, options=options)
    known = {move["move"]: move for move in answer["statistics"]}
    visited = [move for move in answer["moves"] if move["visits"]]
    for move in visited:
        visits, deviation = move["visits"], known[move["move"]]["deviation"]
        doubt = 3 * math.sqrt((4 * 0.2**2 + visits * deviation**2) / (4 + visits) / visits)
        assert move["lcb"] == pytest.approx(move["q"] - doubt, abs=1e-3)
    most = max(move["visits"] for move in visited)
    enough = [move["lcb"] for move in visited if move["visits"] >= 0.05 * most]
    assert len(enough) > 2
    assert enough == sorted(enough, reverse=True) == [move["lcb"] for move in visited[: len(enough)]]
    assert all("lcb" not in move for move in answer["moves"] if not move["visits"])


def test_without_deviations_there_is_no_bound(talk: Conversation) -> None:
    options = {"value_choice_deviations": 0}
    answer = talk.ask(id="a", nodes=50, include_statistics=True, options=options)
    assert "lcb" not in answer["moves"][0]
    assert {move["deviation"] for move in answer["statistics"]} == {None}


def test_the_policy_is_the_networks_without_the_searchs_temperature(talk: Conversation) -> None:
    as_it_is = talk.ask(id="a", nodes=2, include_policy=True, options={"policy_temperature": 1.0})["policy"]
    undone = talk.ask(id="b", nodes=2, include_policy=True, options={"policy_temperature": 2.5})["policy"]
    assert undone == pytest.approx(as_it_is, abs=2e-4)


def test_results_are_for_the_side_that_is_asked_for(talk: Conversation) -> None:
    def asked(side: str) -> dict[str, Any]:
        fields = {
            "fen": "4k3/8/8/8/8/8/4q3/K7 b - - 0 1",
            "options": {"minibatch_size": 1, "batches_in_flight": 1},
        }
        return talk.ask(id=side, nodes=200, point_of_view=side, include_statistics=True, **fields)

    own, black, white = asked("side_to_move"), asked("black"), asked("white")
    assert own["root"] == black["root"]
    assert white["root"]["q"] == -own["root"]["q"]
    assert white["root"]["wdl"] == own["root"]["wdl"][::-1]
    assert white["moves"][0]["lcb"] == -own["moves"][0]["lcb"]
    assert white["moves"][0]["score"] == -own["moves"][0]["score"]
    assert [move["q"] for move in white["statistics"]] == [-move["q"] for move in own["statistics"]]


def test_a_mate_is_found_and_told_with_its_sign(talk: Conversation) -> None:
    fen = "6k1/5ppp/8/8/8/8/5PPP/R5K1 w - - 0 1"
    answer = talk.ask(id="a", fen=fen, mate=1, nodes=100_000)
    assert (answer["moves"][0]["move"], answer["moves"][0]["mate"]) == ("a1a8", 1)
    assert answer["root"]["proven"] == 1
    assert answer["moves"][0]["lcb"] == 1
    assert answer["root"]["q"] == 1 and "network" in answer["root"]
    assert talk.ask(id="b", fen=fen, mate=1, point_of_view="black")["moves"][0]["mate"] == -1


def test_a_game_that_is_over_is_answered_without_a_search(talk: Conversation) -> None:
    mated = talk.ask(id="a", moves=["f2f3", "e7e5", "g2g4", "d8h4"], nodes=100)
    assert mated["game_over"] == {"result": "black_won", "reason": "checkmate"}
    assert mated["moves"] == []
    drawn = talk.ask(id="b", fen="8/8/4k3/8/8/3K4/8/8 w - - 0 1", nodes=100)
    assert drawn["game_over"] == {"result": "draw", "reason": "insufficient material"}


def test_avoided_and_allowed_moves(talk: Conversation) -> None:
    avoided = talk.ask(id="a", nodes=100, multipv=50, avoid_moves=["e2e4", "d2d4"])
    assert len(avoided["moves"]) == 18
    allowed = talk.ask(id="b", nodes=100, multipv=50, allow_moves=["e2e4", "d2d4"])
    assert {move["move"] for move in allowed["moves"]} == {"e2e4", "d2d4"}
    below = talk.ask(
        id="c",
        nodes=400,
        allow_moves=[
            {"moves": ["e2e4"], "player": "white"},
            {"moves": ["c7c5"], "player": "black", "until_depth": 2},
        ],
    )
    assert below["moves"][0]["pv"][:2] == ["e2e4", "c7c5"]
    none = talk.ask(id="d", allow_moves=["e2e5"])
    assert (none["field"], none["turn"]) == ("allow_moves", 0)


def test_rules_of_one_query_do_not_reach_the_next() -> None:
    with scheduler(SEQUENTIAL, searches=1) as made:
        talk = Conversation(made)
        rule = [{"moves": ["c7c5"], "player": "black", "until_depth": 2}]
        talk.say(id="a", nodes=100, allow_moves=rule)
        talk.say(id="b", nodes=100, include_statistics=True)
        talk.say(id="c", nodes=100, include_statistics=True)
        _, after, again = (talk.client.next() for _ in range(3))
        assert after["statistics"] == again["statistics"]


def test_an_unknown_network_is_refused_and_a_known_one_is_not(talk: Conversation) -> None:
    talk.ask(id="s", nodes=1)  # Before the evaluator is ready, no network is known.
    networks = talk.ask(id="n", action="query_networks")["networks"]
    assert talk.ask(id="a", nodes=10, network=networks[0]["name"])["root"]["visits"] == 10
    assert talk.ask(id="b", nodes=10, network=networks[0]["content_hash"])["root"]["visits"] == 10
    refused = talk.ask(id="c", nodes=10, network="/etc/passwd")
    assert refused["field"] == "network"
    assert "query_networks" in refused["error"]


# -- queries that are wrong ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("", None),
        ("nonsense", None),
        ("[1, 2]", None),
        ("3", None),
        ('{"id": "a"', None),
        (b"\xff\xfe{}", None),
        ("[" * 100_000, None),
        ("{}", "id"),
        ('{"id": 3}', "id"),
        ('{"id": ""}', "id"),
        (json.dumps({"id": "x" * 201}), "id"),
        ('{"id": "a", "action": "explode"}', "action"),
        ('{"id": "a", "action": {}}', "action"),
        ('{"id": "a", "action": "terminate"}', "terminate_id"),
        ('{"id": "a", "action": "terminate_all", "turns": "all"}', "turns"),
        ('{"id": "a", "fen": "\\ud800"}', "fen"),
        ('{"id": "a", "nodes": 1e400}', "nodes"),
        ('{"id": "a", "nodes": NaN}', "nodes"),
    ],
)
def test_a_bad_message_is_answered_and_disturbs_nobody(
    talk: Conversation, message: str | bytes, field: str | None
) -> None:
    talk.scheduler.receive(talk.client, message)
    refused = talk.client.next()
    assert refused["error"]
    assert refused.get("field") == field
    assert talk.ask(id="good", nodes=10)["root"]["visits"] == 10


@settings(max_examples=rounds(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(MESSAGES)
def test_no_message_causes_a_fault(shared_scheduler: QueryScheduler, message: dict[str, Any]) -> None:
    talk = Conversation(shared_scheduler)
    talk.say(**message)
    talk.say(id="end", action="terminate_all")
    shared_scheduler.end(talk.client)
    assert talk.client.is_done.wait(60)
    found = [talk.client.next() for _ in range(talk.client.answers.qsize())]
    assert len(found) >= 2
    assert not [answer for answer in found if answer.get("error", "").startswith("fault")]


def test_a_field_that_is_not_used_is_warned_of(talk: Conversation) -> None:
    warning = talk.ask(id="a", nodes=10, maxVisits=10)
    assert (warning["id"], warning["field"]) == ("a", "maxVisits")
    assert "not used" in warning["warning"]
    assert talk.client.next()["root"]["visits"] == 10
    assert "warning" in talk.ask(id="b", action="query_version", verbose=True)
    assert "version" in talk.client.next()


@pytest.mark.skipif(sys.platform == "win32", reason="processes cannot be suspended by a signal")
def test_position_has_a_move_when_time_ends_unevaluated() -> None:
    with scheduler(own=True) as made:
        talk = Conversation(made)
        talk.ask(id="warm", nodes=1)
        evaluator = suspend(*map(psutil.Process, made.evaluator_pids()))
        talk.say(id="late", moves=["h2h4", "a7a5"], movetime=20)
        assert "first evaluation" in talk.client.next()["warning"]
        evaluator.resume()
        answer = talk.client.next()
        assert (answer["id"], answer["root"]["visits"], len(answer["moves"])) == ("late", 1, 1)


def test_a_client_may_have_so_many_positions_waiting() -> None:
    with scheduler(searches=1, max_queued=5) as made:
        talk = Conversation(made)
        talk.say(id="running", infinite=True, report_every=0.01)
        assert talk.client.next()["id"] == "running"
        talk.say(id="five", moves=GAME, analyze_turns=[0, 1, 2, 3, 4], nodes=1)
        talk.say(id="sixth", nodes=1)
        *_, refused = talk.client.until(lambda answer: answer["id"] == "sixth")
        assert "5 positions are waiting" in refused["error"]
        other = Conversation(made)
        assert other.ask(id="another client's", nodes=5)["root"]["visits"] == 5


def test_the_queries_of_a_client_that_wait_are_so_long_at_most() -> None:
    with scheduler(searches=1, max_queued_bytes=3000) as made:
        talk = Conversation(made)
        talk.say(id="running", infinite=True, report_every=0.05)
        assert talk.client.next()["id"] == "running"
        moves = ["g1f3", "g8f6", "f3g1", "f6g8"] * 50
        for number in range(3):
            talk.say(id=str(number), moves=moves, nodes=1)
        *_, refused = talk.client.until(lambda answer: answer["id"] == "2")
        assert "at most 3,000 may wait" in refused["error"]
        talk.say(id="short", action="query_version")
        talk.client.until(lambda answer: answer["id"] == "short")


# -- ending queries ------------------------------------------------------------------------------------------


def test_terminate_ends_what_runs_and_drops_what_waits() -> None:
    with scheduler(searches=1) as made:
        talk = Conversation(made)
        talk.say(id="a", moves=GAME, analyze_turns=[0, 1, 2], infinite=True, report_every=0.01)
        assert talk.client.next()["turn"] == 0
        talk.say(id="b", nodes=10)
        talk.say(id="stop", action="terminate", terminate_id="a", turns=[2])
        found = talk.client.until(lambda answer: answer.get("action") == "terminate")
        assert {"id": "a", "turn": 2, "during_search": False, "no_results": True} in found
        talk.say(id="stop", action="terminate", terminate_id="a")
        ended = talk.client.until(lambda answer: answer["id"] == "b")
        assert [answer["turn"] for answer in ended if answer.get("no_results")] == [1]
        assert [answer["turn"] for answer in ended if answer.get("terminated")] == [0]
        assert ended[-1]["root"]["visits"] == 10


def test_terminate_all_ends_everything_of_one_client(shared_scheduler: QueryScheduler) -> None:
    mine, other = Conversation(shared_scheduler), Conversation(shared_scheduler)
    other.say(id="other", infinite=True, report_every=0.01)
    assert other.client.next()["during_search"]
    for number in range(5):
        mine.say(id=str(number), infinite=True, report_every=0.01)
    mine.client.until(lambda answer: answer["id"] == "4")
    mine.say(id="all", action="terminate_all")
    shared_scheduler.end(mine.client)
    assert mine.client.is_done.wait(60)
    assert other.client.next()["during_search"]
    while other.client.next()["during_search"] and other.client.answers.qsize():
        pass
    assert other.client.next()["during_search"]
    shared_scheduler.leave(other.client)


def test_a_client_that_leaves_ends_its_searches() -> None:
    with scheduler(searches=1) as made:
        first, second = Conversation(made), Conversation(made)
        first.say(id="a", infinite=True, report_every=0.01)
        first.client.next()
        made.leave(first.client)
        for number in range(3):
            assert second.ask(id=str(number), nodes=10)["id"] == str(number)


def test_tree_is_continued_though_its_search_is_still_stopping(shared_scheduler: QueryScheduler) -> None:
    left, next_one, third = (Conversation(shared_scheduler, RecordingClient("me")) for _ in range(3))
    left.say(id="a", infinite=True, report_every=0.05)
    while left.client.next()["root"]["visits"] < 2000:
        pass
    shared_scheduler.leave(left.client)
    third.say(id="b", nodes=1, keep_tree=True)
    third.say(id="end", action="terminate_all")
    assert next_one.ask(id="c", nodes=1, keep_tree=True)["root"]["visits"] >= 2000
    assert third.client.next()["id"] in ("b", "end")


def test_endless_queries_of_one_client_leave_another_its_turn() -> None:
    with scheduler(searches=2) as made:
        greedy, modest = Conversation(made), Conversation(made)
        for number in range(8):
            greedy.say(id=str(number), infinite=True, report_every=0.01, priority=10**9)
        greedy.client.until(lambda answer: answer["id"] == "1")
        assert modest.ask(id="a", nodes=50)["root"]["visits"] == 50


def test_nothing_more_is_begun_for_a_client_that_does_not_read(shared_scheduler: QueryScheduler) -> None:
    client = RecordingClient()
    talk = Conversation(shared_scheduler, client)
    client.congested = True
    talk.say(id="a", nodes=10)
    assert talk.ask(id="v", action="query_version")["id"] == "v"
    client.congested = False
    shared_scheduler.resume(client)
    assert client.next()["id"] == "a"


# -- actions and the evaluator -------------------------------------------------------------------------------


def test_actions_echo_their_id_and_name(talk: Conversation) -> None:
    version = talk.ask(id="v", action="query_version")
    assert (version["id"], version["action"], version["name"]) == ("v", "query_version", "Wavefront")
    options = {option["name"]: option for option in talk.ask(id="o", action="query_options")["options"]}
    assert options["cpuct"]["value"] == pytest.approx(1.745)
    assert options["fpu_strategy"]["choices"] == ["reduction", "absolute"]
    assert not {"weights", "hash", "log_file"} & options.keys()
    assert talk.ask(id="c", action="clear_cache") == {"id": "c", "action": "clear_cache"}


def test_a_cleared_cache_is_evaluated_anew() -> None:
    with scheduler(SEQUENTIAL, searches=1) as made:
        talk = Conversation(made)
        first = talk.ask(id="a", nodes=100)["search"]["evaluations"]
        assert talk.ask(id="b", nodes=100)["search"]["evaluations"] == 0
        talk.ask(id="c", action="clear_cache")
        assert talk.ask(id="d", nodes=100)["search"]["evaluations"] == first > 0


def test_cached_evaluations_are_their_owners_alone() -> None:
    with scheduler(SEQUENTIAL, searches=2) as made:
        first, second = Conversation(made), Conversation(made)
        second.client.owner = "another"
        needed = first.ask(id="a", nodes=100)["search"]["evaluations"]
        assert second.ask(id="b", nodes=100)["search"]["evaluations"] == needed > 0
        second.ask(id="c", action="clear_cache")
        first.ask(id="d", nodes=100)
        second.ask(id="e", nodes=1)
        assert first.ask(id="f", nodes=100)["search"]["evaluations"] == 0


def test_without_an_evaluator_every_query_is_answered_so() -> None:
    with scheduler(RANDOM.changed(backend="imaginary"), own=True) as made:
        talk = Conversation(made)
        talk.say(id="a", moves=GAME, analyze_turns=[0, 1])
        for turn in (0, 1):
            answer = talk.client.next()
            assert (answer["id"], answer["turn"]) == ("a", turn)
            assert "imaginary" in answer["error"]
        assert "error" in talk.ask(id="b")
        assert talk.ask(id="v", action="query_version")["version"]


def test_a_key_that_comes_twice_is_warned_of_once() -> None:
    with scheduler(own=True) as made:
        talk = Conversation(made)
        talk.scheduler.receive(talk.client, '{"id": "a", "nodes": 5, "nodes": 6, "nodes": 7}')
        warning = talk.client.next()
        assert (warning["field"], warning["warning"]) == (
            "nodes",
            "the key 'nodes' came twice, the last value counts",
        )
        assert talk.client.next()["root"]["visits"] == 7


def test_networks_are_starting_until_there_is_an_evaluator() -> None:
    made = QueryScheduler(RANDOM, AnalysisSettings())
    talk = Conversation(made)
    try:
        before = talk.ask(id="n", action="query_networks")
        assert (before["ready"], before["state"]) == (False, "starting")
        made.start()
        talk.ask(id="a", nodes=1)
        after = talk.ask(id="n", action="query_networks")
        assert (after["ready"], after["state"], len(after["networks"])) == (True, "ready", 1)
    finally:
        made.close()
