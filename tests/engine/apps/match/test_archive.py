# SPDX-License-Identifier: GPL-3.0-or-later
"""A match's journal and PGN: the same games in both, each once, whatever the writer's end was."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import chess.pgn
import pytest

from engine.apps.games.journal import JournalError
from engine.apps.games.record import GameRecord, MoveRecord, Reason
from engine.apps.match.campaign import MatchCampaign
from engine.apps.match.config import MatchConfig, PlayerConfig


def config_at(tmp_path: Path) -> MatchConfig:
    return MatchConfig((PlayerConfig("a"), PlayerConfig("b")), games=10, output=str(tmp_path / "match"))


def opened(config: MatchConfig, **flags: Any) -> MatchCampaign:
    """The match, with open files."""
    campaign = MatchCampaign(config)
    campaign.open(**flags)
    return campaign


def written(config: MatchConfig, *numbers: int, **flags: Any) -> MatchCampaign:
    """The match after it was opened and games were written; its files are closed."""
    campaign = opened(config, **flags)
    for number in numbers:
        campaign.write(record(number))
    campaign.close()
    return campaign


def record(number: int) -> GameRecord:
    moves = tuple(
        MoveRecord(uci, 0.1, score_cp=12, depth=3, nodes=40) for uci in ("f2f3", "e7e5", "g2g4", "d8h4")
    )
    white = number % 2
    return GameRecord(number, number // 2, white, 1 - white, "0-1", Reason.CHECKMATE, "none", moves=moves)


def games_in(path: Path) -> list[str]:
    stream = io.StringIO(path.read_text("utf-8"))
    numbers = []
    while (game := chess.pgn.read_game(stream)) is not None:
        assert not game.errors
        numbers.append(game.headers["GameNumber"])
    return numbers


def test_an_archive_knows_its_games(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    written(config, 1, 0, 4)
    assert written(config).outcomes == [record(number).outcome for number in (1, 0, 4)]
    assert games_in(config.files.pgn) == ["2", "1", "5"]


@pytest.mark.parametrize(
    ("there", "instead"),
    [
        ('"result":"0-1"', '"result":"2-0"'),
        ('"number":0', '"number":"x"'),
        ('"plies":', '"moves":'),
        ('"white":0', '"white":[]'),
        ('"reason":"checkmate"', '"reason":"boredom"'),
        ('"pgn_end":', '"pgn_end":-'),
    ],
)
def test_a_damaged_game_is_named(tmp_path: Path, there: str, instead: str) -> None:
    config = config_at(tmp_path)
    written(config, 0)
    header, game = config.files.journal.read_text("utf-8").splitlines(keepends=True)
    assert there in game
    config.files.journal.write_text(header + game.replace(there, instead), "utf-8")
    with pytest.raises(JournalError, match=r"is damaged \("):
        opened(config)


def test_game_leaves_the_pgn_when_the_journal_lacks_it(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    written(config, 0)
    before = config.files.journal.read_bytes()
    written(config, 1)
    for remaining in (before, before + b'{"number":1,"pai'):  # Killed between the two, or in the second.
        config.files.journal.write_bytes(remaining)
        assert [outcome.number for outcome in written(config, 1).outcomes] == [0]
        assert games_in(config.files.pgn) == ["1", "2"]


def test_another_match_is_refused_and_the_difference_named(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    written(replace(config, seed=3))  # Nothing was played: it does not matter what.
    written(config, 0)
    with pytest.raises(JournalError, match=r"seed: 1 .*2"):
        opened(replace(config, seed=2))
    written(replace(config, games=20))
    written(replace(config, seed=2), restart=True)
    assert json.loads(config.files.journal.read_text("utf-8"))["identity"]["seed"] == 2


def test_a_pgn_that_went_missing_is_noticed(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    written(config, 0)
    config.files.pgn.unlink()
    notes: list[str] = []
    written(config, 1, log=notes.append)
    assert "shorter than the journal says" in notes[0]
    assert games_in(config.files.pgn) == ["2"]
    assert [outcome.number for outcome in written(config).outcomes] == [0, 1]
