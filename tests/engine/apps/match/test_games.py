# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole matches in one process: real players, real programs, and everything that they can do wrong."""

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import chess
import pytest

from engine.apps.games.openings import OpeningSettings
from engine.apps.games.record import Reason
from engine.apps.match.adjudication import Adjudication
from engine.apps.match.campaign import FAULTS_IN_A_ROW, MatchCampaign, MatchError
from engine.apps.match.config import PlayerConfig
from engine.apps.match.players import program as program_module
from engine.apps.match.players.player import PlayerError
from engine.apps.match.results.sprt import Sprt
from engine.apps.match.timecontrol import TimeControl
from tests.engine.apps.games.recorder import Recorder
from tests.engine.apps.match.matches import RANDOM, engine, match, play, program, replay
from tests.engine.evaluation.evaluators import shared_evaluator

pytestmark = pytest.mark.integration

SHORT = Adjudication(max_moves=12)


@pytest.fixture(autouse=True)
def shared() -> Iterator[None]:
    with shared_evaluator():
        yield


def stockfish() -> str:
    path = shutil.which(
        "stockfish", path="/usr/games:/usr/local/bin:/usr/bin:/opt/homebrew/bin"
    ) or shutil.which("stockfish")
    if path is None:
        pytest.skip("needs Stockfish: apt-get install stockfish")
    return path


def test_two_players_of_this_engine_share_one_evaluator(tmp_path: Path) -> None:
    config = match(tmp_path, [engine("a", 20), engine("b", 5)], games=12, concurrency=6)
    ending, campaign, recorder = play(config)
    assert ending == "finished"
    assert sorted(record.number for record in recorder.records) == list(range(12))
    tally = campaign.standings.tally(0, 1)
    assert tally.games == 12
    assert tally.finished_pairs == 6
    games = replay(config.files.pgn)
    assert len(games) == 12
    assert {game.headers["White"] for game in games} == {"a", "b"}
    assert campaign.throughput.pool.evaluations > 0
    assert campaign.throughput.pool.moves == sum(len(record.moves) for record in recorder.records)
    summary = json.loads(config.files.summary.read_text("utf-8"))
    assert summary["finished"] is True
    assert summary["games"] == 12
    assert [player["games"] for player in summary["players"]] == [12, 12]
    assert summary["speed"]["mean_batch"] > 0


def test_comments_say_what_players_thought(tmp_path: Path) -> None:
    players = [engine("a", 20), program("b")]
    config = match(tmp_path, players, adjudication=SHORT, concurrency=2)
    play(config)
    games = replay(config.files.pgn)
    assert len(games) == 2
    for game in games:
        for node in game.mainline():
            if node.comment == "book":
                continue
            mover = game.headers["White" if node.turn() == chess.BLACK else "Black"]
            expected = "+0.15/7" if mover == "b" else "n="
            assert expected in node.comment
        assert "draw by move limit" in game.end().comment


def test_all_kinds_of_players_meet_in_a_round_robin(tmp_path: Path) -> None:
    players = [engine("a", 4), program("b"), program("c")]
    config = match(tmp_path, players, adjudication=SHORT, concurrency=3)
    _, campaign, _ = play(config)
    assert [campaign.standings.total(player).games for player in range(3)] == [4, 4, 4]
    assert len(replay(config.files.pgn)) == 6


@pytest.mark.parametrize(
    ("fault", "reason", "detail"),
    [
        ("illegal", Reason.ILLEGAL_MOVE, "e1e5"),
        ("null", Reason.ILLEGAL_MOVE, "null move"),
        ("crash", Reason.DISCONNECT, "out of chess"),
        ("hang", Reason.STALL, ""),
    ],
)
def test_match_continues_after_a_fault(tmp_path: Path, fault: str, reason: Reason, detail: str) -> None:
    # A limit of its own keeps a stalled machine from being taken for the good player's fault.
    players = [program("good", base_ms=60_000), program("bad", fault, ply=12)]
    stall = 1.0 if reason is Reason.STALL else 60.0
    config = match(tmp_path, players, games=4, stall_seconds=stall, concurrency=2, adjudication=SHORT)
    ending, campaign, recorder = play(config)
    assert ending == "finished"
    for record in recorder.records:
        assert record.reason is reason
        assert detail in record.detail
        assert record.result == ("1-0" if record.white == 0 else "0-1")
    assert campaign.standings.tally(0, 1).wins == 4
    assert campaign.standings.players[1].faults == {reason: 4}
    assert {game.headers["Termination"] for game in replay(config.files.pgn)} == {reason.termination}


def test_a_clock_that_runs_out_loses_and_the_program_plays_on(tmp_path: Path) -> None:
    bad = program("bad", "hang", ply=12, base_ms=300)
    config = match(tmp_path, [program("good", base_ms=60_000), bad], concurrency=2, adjudication=SHORT)
    _, _, recorder = play(config)
    assert [record.reason for record in recorder.records] == [Reason.TIME] * 2
    assert all("loses on time" in record.explanation for record in recorder.records)


def test_a_clock_that_runs_out_is_a_draw_if_the_opponent_cannot_mate(tmp_path: Path) -> None:
    (tmp_path / "book.epd").write_text(
        "4k3/8/8/8/8/8/4PP2/4K3 w - -\n4k3/8/8/8/8/8/4PP2/4K3 w - -\n", "utf-8"
    )
    # White has two pawns, Black nothing to mate with.
    players = [program("slow", "hang", base_ms=200), program("good", base_ms=60_000)]
    config = match(
        tmp_path, players, games=1, pairs=False, openings=OpeningSettings(str(tmp_path / "book.epd"))
    )
    _, _, recorder = play(config)
    (record,) = recorder.records
    assert (record.result, record.reason) == ("1/2-1/2", Reason.TIME)


def test_the_time_of_ucinewgame_is_not_the_players(tmp_path: Path) -> None:
    """The program takes longer for `ucinewgame` than it has for a move."""
    players = [program("slow", "slow-start", movetime_ms=2000), program("good")]
    config = match(tmp_path, players, games=1, pairs=False, adjudication=SHORT)
    _, _, recorder = play(config)
    (record,) = recorder.records
    assert not record.reason.is_failure


def test_match_does_not_begin_when_a_program_cannot_start(tmp_path: Path) -> None:
    missing = PlayerConfig("missing", TimeControl(nodes=1), command=("no-such-engine",))
    with pytest.raises(PlayerError, match="missing: cannot start no-such-engine"):
        play(match(tmp_path, [program("good"), missing]))
    lost = PlayerConfig("lost", command=("no-such-engine",), directory=str(tmp_path / "nowhere"))
    with pytest.raises(PlayerError, match=r"lost: .*nowhere"):
        play(match(tmp_path, [program("good"), lost]))
    no_engine = PlayerConfig("python", TimeControl(nodes=1), command=(program("x").command[0], "-c", ""))
    with pytest.raises(PlayerError, match="python: "):
        play(match(tmp_path, [program("good"), no_engine]))
    with pytest.raises(PlayerError, match=r"bad: .*Nonsense"):
        bad = PlayerConfig(
            "bad", TimeControl(nodes=1), command=program("x").command, uci_options={"Nonsense": 1}
        )
        play(match(tmp_path, [program("good"), bad]))


def test_a_program_that_says_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_module, "START_SECONDS", 0.3)
    with pytest.raises(PlayerError, match=r"mute: .*UCI"):
        play(match(tmp_path, [program("mute", "mute"), engine("good")]))


def test_match_needs_readable_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WAVEFRONT_EVALUATOR")
    (tmp_path / "bad.pb.gz").write_bytes(b"no network")
    bad = PlayerConfig(
        "bad",
        TimeControl(nodes=1),
        options=RANDOM.changed(weights=str(tmp_path / "bad.pb.gz"), backend="onnx"),
    )
    with pytest.raises(PlayerError, match=r"bad: .*bad\.pb\.gz"):
        play(match(tmp_path, [bad, program("good")]))


def test_a_player_that_only_crashes_ends_the_match_in_the_end(tmp_path: Path) -> None:
    config = match(tmp_path, [program("good"), program("bad", "crash")], games=100, concurrency=2)
    with pytest.raises(MatchError, match=rf"bad .*{FAULTS_IN_A_ROW} games"):
        play(config)
    assert len(replay(config.files.pgn)) >= FAULTS_IN_A_ROW


def test_chess960_is_played_by_both_kinds(tmp_path: Path) -> None:
    players = [engine("a", 8, chess960=True), program("b")]
    config = match(
        tmp_path, players, games=8, chess960=True, concurrency=4, adjudication=Adjudication(max_moves=40)
    )
    play(config)
    games = replay(config.files.pgn)
    assert len(games) == 8
    assert all(game.headers["Variant"] == "Chess960" for game in games)
    assert len({game.headers["FEN"] for game in games}) == 4


def test_the_sprt_stops_the_match(tmp_path: Path) -> None:
    players = [program("good"), program("bad", "illegal", ply=10)]
    config = match(tmp_path, players, games=1000, concurrency=2, sprt=Sprt(0, 100))
    ending, campaign, _ = play(config)
    assert ending == "finished"
    assert campaign.standings.decision == "H1"
    assert campaign.standings.games < 100
    # The same command again has nothing to play, and says the same.
    again, campaign, recorder = play(config)
    assert (again, campaign.standings.decision, recorder.records) == ("finished", "H1", [])


def test_a_match_can_be_made_longer(tmp_path: Path) -> None:
    players = [program("a"), program("b")]
    play(match(tmp_path, players, games=2, adjudication=SHORT))
    longer = match(tmp_path, players, games=6, adjudication=SHORT)
    _, campaign, recorder = play(longer)
    assert sorted(record.number for record in recorder.records) == [2, 3, 4, 5]
    assert campaign.resumed == 2
    assert len(replay(longer.files.pgn)) == 6
    campaign = MatchCampaign(match(tmp_path, players, games=2, adjudication=SHORT))
    with pytest.raises(MatchError, match="number of games"):
        asyncio.run(campaign.run(Recorder()))
    assert not campaign.outcomes  # Half of a match is no result.


def test_limited_stockfish_plays_this_engine_on_the_clock(tmp_path: Path) -> None:
    opponent = PlayerConfig(
        "Stockfish",
        TimeControl(base_ms=60_000, increment_ms=100, nodes=500),
        command=(stockfish(),),
        uci_options={"UCI_LimitStrength": True, "UCI_Elo": 1350},
    )
    own = PlayerConfig("own", TimeControl(base_ms=60_000, increment_ms=100, nodes=30), options=RANDOM)
    config = match(tmp_path, [own, opponent], games=2, concurrency=1, adjudication=Adjudication(max_moves=60))
    ending, _, recorder = play(config)
    assert ending == "finished"
    assert not any(record.reason.is_failure for record in recorder.records)
    for record in recorder.records:
        assert all(move.clock_ms is not None and move.nodes is not None for move in record.moves)
