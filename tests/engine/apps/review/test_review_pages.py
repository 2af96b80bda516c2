# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages and annotated games of a review, without a search."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import chess
import pytest

from engine.apps.review.annotating import annotated
from engine.apps.review.games import GameReview, SourceGame, finished
from engine.apps.review.judging import Searched
from engine.apps.review.pages import game_page, index_page
from engine.apps.review.people import ESTIMATE, Imitators, People, rating_of
from engine.apps.review.scale import Score
from engine.options import Options

TEXT = """[Event "Cup <1>"]
[Date "2026.03.14"]
[White "Ann"]
[Black "Bob"]
[TimeControl "600+5"]
[Result "0-1"]

{Before.} 1. f3 $5 {[%clk 0:10:00] The <first>.} (1. e4 e5 (1... c5 2. Nf3)) 1... e5 {[%clk 0:10:02]}
2. g4 {[%clk 0:00:15]} 2... Qh4# {[%clk 0:09:00]} 0-1
"""


@pytest.fixture
def review() -> GameReview:
    values = ((0.5, "e2e4"), (0.65, "e7e5"), (0.35, "b1c3"), (0.99, "d8h4"))
    searched = [Searched(Score((value, 0.0, 1 - value), 0.0), best, (best,)) for value, best in values]
    source = SourceGame(7, "cup.pgn", 1, TEXT)
    return finished(source, source.read(), [*searched, Searched(Score.of((0.0, 0.0, 1.0)))])


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_a_page_has_moves_marks_notes_and_lines_to_play(review: GameReview) -> None:
    page = game_page(review)
    data = data_of(page)
    assert [move["u"] for move in data["moves"]] == ["f2f3", "e7e5", "g2g4", "d8h4"]
    assert [move.get("m") for move in data["moves"]] == ["mistake", None, "blunder", None]
    assert data["lost"] == 2 and data["fen"] == chess.STARTING_FEN
    assert [line["u"] for line in data["moves"][2]["l"]] == ["b1c3", "d8h4"]
    assert data["notes"]["0"]["text"] == "Before." and data["notes"]["1"]["text"] == "The <first>."
    assert [line["s"] for line in data["notes"]["0"]["lines"]] == ["e4 e5", "e4 c5 Nf3"]
    assert "<first>" not in page


def test_the_legal_moves_of_a_mistake_are_there_to_try(review: GameReview) -> None:
    moves = data_of(game_page(review))["moves"]
    assert len(moves[0]["q"].split()) == 20 and moves[0]["b"] == "e2e4" and "q" not in moves[1]


def test_the_named_player_is_at_the_bottom_and_chosen_in_the_list(review: GameReview) -> None:
    assert data_of(game_page(review, "Bob"))["bottom"] == "black"
    assert data_of(game_page(review, "Ann"))["bottom"] == data_of(game_page(review))["bottom"] == "white"
    assert data_of(index_page([review], [], "Bob"))["player"] == "Bob"


def test_the_list_has_what_it_filters_and_sums(review: GameReview) -> None:
    (game,) = data_of(index_page([review], [("cup.pgn:9", "Ke3 is <illegal>")]))["games"]
    assert (game["n"], game["d"], game["w"], game["b"], game["r"]) == (7, "2026.03.14", "Ann", "Bob", "0-1")
    white, black = game["s"]
    assert white[0][0] == black[0][0] == 2 and white[0][2:] == [0, 1, 1]  # Two moves each, in the opening.
    assert white[3][0] == 1 and black[3][0] == 0  # Ann's second move was in time trouble.


def test_seconds_of_moves_come_from_the_clocks_and_the_increment(review: GameReview) -> None:
    assert [move.spent for move in review.moves] == [5.0, 3.0, 590.0, 67.0]


def test_a_long_game_has_a_page_of_at_most_sixty_thousand_bytes() -> None:
    moves = " ".join(f"{number}. Nf3 Nf6 {number + 1}. Ng1 Ng8" for number in range(1, 100, 2))
    source = SourceGame(1, "long.pgn", 1, f'[Result "1-0"]\n\n{moves} 1-0')
    game = source.read()
    line = ("e2e4", "e7e5", "g1f3", "b8c6", "f1b5", "a7a6")
    positions = []
    for ply in range(201):
        # A mark every tenth ply, with long lines.
        value = 0.8 if ply % 10 == 0 else 0.2 if ply % 2 == 0 else 0.8
        positions.append(
            Searched(
                Score((value, 0.0, 1 - value), 1.0),
                line[0] if ply % 4 == 0 else None,
                line if ply % 4 == 0 else (),
            )
        )
    page = game_page(finished(source, game, positions))
    assert len(page.encode()) < 60_000


def test_annotated_games_have_win_draw_and_loss_and_keep_the_author(review: GameReview) -> None:
    pgn = annotated(SourceGame(7, "cup.pgn", 1, TEXT), review)
    assert re.findall(r"%wdl (\S+)\]", pgn)[:2] == ["500,0,500", "350,0,650"]
    assert "The <first>." in pgn and "e4 c5" not in pgn and "c5 2. Nf3" in pgn.replace("1... ", "")
    assert "lost here" in pgn


def test_proven_mates_have_the_standard_form() -> None:
    source = SourceGame(
        1, "won.pgn", 1, '[FEN "7k/8/6K1/8/8/8/8/R7 w - - 0 1"]\n[SetUp "1"]\n\n1. Ra2 Kg8 2. Ra1 *'
    )
    won, lost = Score.of((1.0, 0.0, 0.0)), Score.of((0.0, 0.0, 1.0))
    positions = [
        Searched(won, "a1a8", ("a1a8",), mate=1),
        Searched(lost, "h8g8", ("h8g8",), mate=-1),
        Searched(won, "a2a8", ("a2a8",), mate=1),
        Searched(lost, "g8h8", ("g8h8",)),
    ]
    pgn = annotated(source, finished(source, source.read(), positions))
    assert re.findall(r"%eval ([^\]]+)\]", pgn)[:2] == ["#1", "#1"]
    assert pgn.count("was mate in 1.") == 1 and "Ra8# was mate in 1." in pgn


def test_a_review_survives_its_json(review: GameReview) -> None:
    assert GameReview.of(json.loads(json.dumps(review.data()))) == review


def test_shares_come_from_the_network_with_the_nearest_rating() -> None:
    networks = Imitators.of([Path("maia-1100.pb.gz"), Path("maia-1900.pb.gz")])
    rating, options, temperature = networks.nearest(1400, Options())
    assert (rating, options.weights, temperature) == (1100, "maia-1100.pb.gz", 1.0)
    assert "maia-1900.pb.gz" in networks.source and "estimates" in ESTIMATE.source
    assert [ESTIMATE.nearest(each, Options())[0] for each in (400, 1540, 2800)] == [1100, 1500, 1900]


@pytest.mark.parametrize("name", ["net.pb.gz", "maia-1100-1500.pb.gz", "t12345.pb.gz"])
def test_a_network_without_a_rating_in_its_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=re.escape(name)):
        Imitators.of([Path(name)])


@pytest.mark.parametrize(
    ("headers", "rating"),
    [({"WhiteElo": "1850"}, 1850), ({"WhiteElo": "?"}, 1500), ({"BlackElo": "1850"}, 1500)],
)
def test_the_rating_is_that_of_the_tags(headers: Mapping[str, str], rating: int) -> None:
    assert rating_of(headers, white=True) == rating


def test_only_a_move_that_few_play_is_careless() -> None:
    assert People(1500, plays=0.05, finds=0.7).careless
    assert (
        not People(1500, plays=0.8, finds=0.2).careless and not People(1500, plays=0.05, finds=0.3).careless
    )
