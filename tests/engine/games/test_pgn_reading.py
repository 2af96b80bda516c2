# SPDX-License-Identifier: GPL-3.0-or-later
"""PGN as programs and people write it: what is read, what is named, and what stays."""

from __future__ import annotations

import chess.pgn
import pytest

from engine.games.pgn_reading import PgnError, PgnGames

TAGS = '[White "A"]\n[Result "*"]\n\n'


def games(text: str) -> list[chess.pgn.Game | str]:
    """Return each game of a text, or the reason why it is unreadable."""
    found: list[chess.pgn.Game | str] = []
    for game in PgnGames(text):
        try:
            found.append(game.read(variations=True))
        except PgnError as error:
            found.append(str(error))
    return found


def game_of(text: str) -> chess.pgn.Game:
    (game,) = games(text)
    assert isinstance(game, chess.pgn.Game), game
    return game


def moves(game: chess.pgn.Game | str) -> str:
    assert isinstance(game, chess.pgn.Game), game
    return " ".join(node.san() for node in game.mainline())


@pytest.mark.parametrize(
    "text",
    [
        "1. e4 e5 2. Nf3 *",
        "e4 e5 Nf3",
        "1.e4 e5 2.Nf3!? N *",
        "1 e4 e5 2 Nf3",
        "1... e4 e5 ... 2. Nf3 …",
        "1. e2-e4 e7-e5 2. Ng1-f3",
        "1. Pe4 Pe5 2. Nf3",
        "1. e4 ; best by test {\ne5 2. Nf3",
        "1. e4 e5 (1... c5 2. Nf3 d6 1-0) 2. Nf3 *",
        "1. e4 e5 (1... Rh3 2. d4 (2. c4) 2... Nf6) 2. Nf3 *",
        "1. e4 e5 2. Nf3 (2. d4 exd4 *",
        "( 1. d4) 1. e4 e5 2. Nf3",
        "1. e4 e5 2. Nf3 1-0 Black forgot 1.5 hours",
        "1. e4 e5 2. Nf3 0-1 (on time) 1-0 Nc6",
        "1. e4 $99999999999999999999 e5 2. Nf3 {[%clk " + "9" * 5000 + ":00:00]}",
        "1. e4 " + "9" * 5000 + ". e5 2. Nf3",
    ],
)
@pytest.mark.parametrize("tags", ["", TAGS, '[Variant "normal"]\n\n', '[Variant "chess"]\n\n', "\n% x\n"])
def test_the_main_line_is_read_when_the_game_is_written_freely(text: str, tags: str) -> None:
    assert moves(game_of(tags + text)) == "e4 e5 Nf3"


@pytest.mark.parametrize("variant", ["Standard", "wild/0", "From Position", "Regular", "?"])
def test_ordinary_chess_is_read_under_its_other_names(variant: str) -> None:
    assert moves(game_of(f'[Variant "{variant}"]\n\n1. e4 *')) == "e4"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1. Nf3 P5 Nf6", "P5"),
        ("1. Nf3 hello Nf6", "hello"),
        ("1. e4 N@f6", "N@f6"),
        ("1. ♘f3", "2658"),
        ("1. e5", "e5"),
        ("1. e4 {never closed", "brace"),
        ("4" * 5000 + ". e4", "begins with move 444"),
    ],
)
def test_a_game_is_refused_when_a_word_is_no_move(text: str, reason: str) -> None:
    (error,) = games(TAGS + text)
    assert isinstance(error, str) and reason in error


def test_a_comment_without_end_takes_one_game() -> None:
    text = f"{TAGS}1. e4 {{open\n\n{TAGS}1. d4 {{closed}} d5 *\n\n{TAGS}1. c4 *"
    first, second, third = games(text)
    assert isinstance(first, str) and "brace" in first
    assert (moves(second), moves(third)) == ("d4 d5", "c4")
    assert [game.line for game in PgnGames(text)] == [1, 6, 11]


def test_comments_stay_wherever_they_are() -> None:
    first, second = games(
        f"{{one}}\n{TAGS}; two\n1. e4 ;three\n e5 (1... c5 {{four}}) * {{five}}\nsix\n\n"
        f"{{seven}}\n{TAGS}1. d4 *"
    )
    assert all(word in str(first) for word in ("one two", "three", "four", "five six"))
    assert "seven" not in str(first) and "seven" in str(second)


def test_marks_of_the_author_stay() -> None:
    game = game_of("1. e4! $14 e5 ?? 2. Nf3+- Nc6 □ 3. Bb5 N")
    assert [node.nags for node in game.mainline()] == [{1, 14}, {4}, {18}, {7}, {146}]


def test_control_characters_of_tags_and_comments_are_escaped() -> None:
    text = str(game_of('[White "A\x1b[31m\x9b"]\n\n1. e4 {\x07bell} *'))
    assert r"A\x1b[31m\x9b" in text and r"\x07bell" in text


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('[Result "1-0"]\n\n1. f3 e5 2. g4 Qh4# 1-0', "0-1"),
        ("1. f3 e5 2. g4 Qh4# 1/2-1/2", "0-1"),
        ('[Result "1-0"]\n\n1. e4 0-1', "0-1"),
        ('[Result "0-1"]\n[FEN "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1"]\n\n0-1', "1/2-1/2"),
        ("1. e4 e5 (1... Rh3) *", "Rh3"),
        ('[Result "White wins"]\n\n1. e4 *', "White wins"),
        ("1. e4 $256 *", "256"),
        ('[Weiß "x"]\n\n1. e4 *', "Wei"),
    ],
)
def test_a_fault_that_leaves_the_game_readable_is_reported(text: str, fault: str) -> None:
    assert any(fault in str(error) for error in game_of(text).errors)


@pytest.mark.parametrize(
    "text", ["1. f3 e5 2. g4 Qh4# 0–1", "1. e4 ½–½", "1. e4 1/2", "1. f3 e5 2. g4 Qh4# *"]
)
def test_a_result_that_fits_the_board_has_no_fault(text: str) -> None:
    assert not game_of(text).errors


def test_text_before_the_first_game_is_reported() -> None:
    found = PgnGames("From: me\n\n1. e4 e5 *")
    assert found.ignored is not None and "From: me" in found.ignored[1]
    assert [moves(game.read()) for game in found] == ["e4 e5"]


@pytest.mark.integration
def test_variations_nested_thousands_of_times_are_read() -> None:
    kings = '[FEN "4k3/8/8/8/8/8/8/4K3 w - - 0 1"]\n\n'
    game = game_of(kings + "Kd1 (Kf1 Kd8 (Kf8 Ke2 (Ke1 Ke7 (Ke8 " * 1000 + "))))" * 1000 + " *")
    assert not game.errors and str(game).count("(") > 2000
