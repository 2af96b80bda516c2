# SPDX-License-Identifier: GPL-3.0-or-later
"""benchmarks/strength/ladder: the schedule of games, reports, and small ladders that are played."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.strength.ladder.__main__ import anchored, with_all_games
from benchmarks.strength.ladder.earlier import read_earlier
from benchmarks.strength.ladder.play import Ladder, match_config
from benchmarks.strength.ladder.players import LadderPlayer, program_path
from benchmarks.strength.ladder.report import Conditions, Run, report_data, shortfalls, table
from engine.apps.games.record import GameOutcome, Reason, Result
from engine.apps.match.config import PlayerConfig
from engine.apps.match.timecontrol import TimeControl
from tests.paths import REPOSITORY

CONDITIONS = Conditions(
    seed=1,
    games_wanted=8,
    movetime_ms=100,
    versions={"/usr/games/stockfish": "Stockfish 15.1"},
    runs=[Run("python -m benchmarks.strength.ladder", "abc", "a machine", ["a GPU"], "2026-01-01")],
)


def ladder(tmp_path: Path, players: int = 3, games: int = 8) -> Ladder:
    """A ladder of players with equal guesses, the first one an anchor."""
    all_players = [
        LadderPlayer(
            PlayerConfig(f"player {number}", TimeControl(nodes=1)), 2000.0, None if number else 1800.0
        )
        for number in range(players)
    ]
    return Ladder(all_players, match_config(all_players, tmp_path, seed=1, concurrency=1, workers=1), games)


def outcome(ladder: Ladder, number: int) -> GameOutcome:
    """A finished game; results vary with the number."""
    game = ladder.config.schedule[number]
    results: tuple[Result, ...] = ("1-0", "1/2-1/2", "1-0", "0-1", "1/2-1/2")
    result = results[number % len(results)]
    return GameOutcome(number, game.pair, game.white, game.black, result, Reason.CHECKMATE, 80, 1.0)


def play_all(ladder: Ladder, most: int = 10**6) -> list[int]:
    """Count games as if they were played one after the other; return their numbers."""
    played: list[int] = []
    for number in ladder.numbers(4):
        if len(played) == most:
            break
        ladder.add(outcome(ladder, number))
        played.append(number)
    return played


def test_the_ladder_ends_when_each_player_has_its_games(tmp_path: Path) -> None:
    played = ladder(tmp_path)
    numbers = play_all(played)
    assert len(set(numbers)) == len(numbers)
    assert played.results.games.sum(axis=1).min() >= 8
    assert played.missing == 0
    assert all(opening.games == 2 for opening in played.results.openings)


def test_openings_do_not_repeat(tmp_path: Path) -> None:
    played = ladder(tmp_path, players=4, games=40)
    rounds = [played.config.schedule[number].round for number in play_all(played)]
    assert len(set(rounds)) == len(rounds) / 2


def test_a_resumed_ladder_plays_the_other_game_of_an_opening_first(tmp_path: Path) -> None:
    before, after = ladder(tmp_path), ladder(tmp_path)
    numbers = play_all(before, most=7)
    for number in numbers:
        after.add(outcome(after, number))
    following = play_all(after)
    assert following[0] == numbers[-1] ^ 1
    assert not set(following) & set(numbers)
    assert after.missing == 0


def test_a_game_counts_once(tmp_path: Path) -> None:
    played = ladder(tmp_path)
    number = play_all(played, most=1)[0]
    with pytest.raises(ValueError, match="twice"):
        played.add(outcome(played, number))


def test_the_table_fits_80_columns(tmp_path: Path) -> None:
    played = ladder(tmp_path)
    play_all(played, most=5)
    data = report_data(played, CONDITIONS)
    assert max(map(len, table(data).splitlines())) <= 80
    assert len(table(data).splitlines()) == 4
    assert shortfalls(data)[0].startswith("fewer than 8 games: ")
    json.dumps(data, allow_nan=False)


def test_games_of_earlier_ladders_join_the_fit(tmp_path: Path) -> None:
    played = ladder(tmp_path)
    play_all(played)
    alone = report_data(played, CONDITIONS)
    names = [player.config.name for player in played.players]
    folder = tmp_path / "earlier"
    folder.mkdir()
    others = [*alone["players"], {**alone["players"][-1], "name": "another", "label": None}]
    (folder / "ladder.json").write_text(
        json.dumps({"players": others, "runs": [{"command": "before"}]}), "utf-8"
    )
    players = [{"name": name} for name in [*names, "another"]]
    lines: list[dict[str, Any]] = [{"identity": {"players": players}}]
    for pair, result in enumerate(["1-0", "0-1", "1/2-1/2", "1/2-1/2"]):
        lines.append({"pair": pair // 2, "white": len(names), "black": 1, "result": result})
    (folder / "ladder.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    data = report_data(played, CONDITIONS, [read_earlier(folder)])
    assert data["games"] == alone["games"] + 4
    rated = {player["name"]: player for player in data["players"]}
    assert rated["another"]["elo"] == pytest.approx(rated[names[1]]["elo"], abs=1)
    assert rated["another"]["games"] == 4
    assert data["earlier_runs"] == [{"command": "before"}]
    assert data["runs"] == alone["runs"]


def test_players_of_an_earlier_scale_are_anchors(tmp_path: Path) -> None:
    players = anchored(ladder(tmp_path).players, ["player 1=1874", "player 2=2e3"])
    assert [player.label for player in players] == [1800.0, 1874.0, 2000.0]
    with pytest.raises(ValueError, match="no player is called 'player 9'"):
        anchored(players, ["player 9=1874"])


@pytest.mark.parametrize("damage", ["ladder.json", "ladder.jsonl", "both"])
def test_a_folder_without_a_ladder_is_refused(tmp_path: Path, damage: str) -> None:
    (tmp_path / "ladder.json").write_text('{"players": [], "runs": []}', "utf-8")
    (tmp_path / "ladder.jsonl").write_text('{"identity": {"players": []}}\n{"pair"', "utf-8")
    if damage != "both":
        (tmp_path / damage).unlink()
    with pytest.raises(ValueError, match="--earlier"):
        read_earlier(tmp_path)


def test_games_that_a_killed_run_did_not_report_are_its_own() -> None:
    runs = [Run("", "", "", [], "", games=10), Run("", "", "", [], "", games=5)]
    assert [run.games for run in with_all_games(runs, 18)] == [10, 8]
    assert with_all_games(runs, 15) == runs
    assert with_all_games([], 3) == []


# -- played --------------------------------------------------------------------------------------------------

TINY = (
    *("--networks", "", "--levels", "", "--player", "name=a,backend=random,nodes=2"),
    *("--player", "name=b,backend=random,nodes=4", "--player", "name=c,backend=random,nodes=6"),
    *("--concurrency", "4", "--workers", "1"),
)


def command(folder: Path, *flags: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.strength.ladder", *TINY, "--output", str(folder), *flags]


def result(folder: Path, flags: Sequence[str]) -> dict[str, Any]:
    subprocess.run(command(folder, *flags), cwd=REPOSITORY, check=True, capture_output=True, timeout=250)
    data: dict[str, Any] = json.loads((folder / "ladder.json").read_text("utf-8"))
    return data


@pytest.mark.integration
def test_a_killed_ladder_resumes(tmp_path: Path) -> None:
    flags = ("--uci-elo", "", "--stockfish-nodes", "", "--games", "6")
    journal = tmp_path / "ladder.jsonl"
    with subprocess.Popen(command(tmp_path, *flags), cwd=REPOSITORY, stderr=subprocess.PIPE) as process:
        while not journal.exists() or journal.read_bytes().count(b"\n") < 3:
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.02)
        process.kill()
    kept = journal.read_bytes()
    data = result(tmp_path, flags)
    assert journal.read_bytes().startswith(kept[: kept.rindex(b"\n") + 1])
    numbers = [json.loads(line)["number"] for line in journal.read_text("utf-8").splitlines()[1:]]
    assert len(set(numbers)) == len(numbers) == data["games"]
    assert min(player["games"] for player in data["players"]) >= 6
    assert data["runs"][-1]["games"] < data["games"]
    page = (tmp_path / "ladder.md").read_text("utf-8")
    assert all(text in page for text in ("seed 1", "python -m benchmarks.strength.ladder", "commit "))


@pytest.mark.integration
@pytest.mark.skipif(program_path("stockfish") is None, reason="needs Stockfish")
def test_tiny_players_and_stockfish_share_a_scale(tmp_path: Path) -> None:
    flags = ("--uci-elo", "1350", "--movetime", "5", "--stockfish-nodes", "1", "--games", "2")
    data = result(tmp_path, flags)
    assert {player["name"] for player in data["players"]} >= {"a", "b", "c", "stockfish UCI_Elo 1350"}
    assert min(player["games"] for player in data["players"]) >= 2
    assert data["movetime_ms"] == 5
