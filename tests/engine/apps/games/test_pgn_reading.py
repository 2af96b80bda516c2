# SPDX-License-Identifier: GPL-3.0-or-later
"""PGN as programs and people write it: what is read, what is named, and what stays."""

import random
import re

import chess.pgn
import pytest

from engine.apps.games.pgn_reading import PgnError, PgnGames

TAGS = '[White "A"]\n[Result "*"]\n\n'


def games(text: str) -> list[chess.pgn.Game | str]:
    """Return each game of a text, or the reason why it is unreadable."""
    found: list[chess.pgn.Game | str] = []
    for game in PgnGames(text):
        try:
            found.append(game.read())
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
    ],
)
@pytest.mark.parametrize("tags", ["", TAGS, '[Variant "normal"]\n\n', '[Variant "chess"]\n\n', "\n% x\n"])
def test_the_main_line_is_read_when_the_game_is_written_freely(text: str, tags: str) -> None:
    assert moves(game_of(tags + text)) == "e4 e5 Nf3"


@pytest.mark.parametrize("variant", ["wild/0", "From Position", "Regular", "?", "Normal Chess", "Blitz"])
def test_ordinary_chess_is_read_under_its_other_names(variant: str) -> None:
    assert moves(game_of(f'[Variant "{variant}"]\n\n1. e4 *')) == "e4"


@pytest.mark.parametrize(
    ("text", "kept", "fault"),
    [
        ("1. Nf3 P5 Nf6", "Nf3", "line 4, column 8: 'P5' is not a move"),
        ("1. Nf3\nhello Nf6", "Nf3", "line 5, column 1: 'hello'"),
        ("1. e4 N@f6", "e4", "'@f6'"),
        ("1. e5", "", "column 4: 'e5' is an illegal move"),
        ("1. e4 {never closed", "e4", "brace"),
        ("1. e4 e5 [D 2. Nf3 *", "e4 e5", "'[D'"),
        ("1. e4 e5 2. Nf3 Nc6 3. O- O *", "e4 e5 Nf3 Nc6", "'O-'"),
        (
            "1. e4 e5 2. Nf3 Nc6 3. Bc4 Bc5 4. 0~0 Nd4 5. Nxd4 *",
            "e4 e5 Nf3 Nc6 Bc4 Bc5",
            "column 35: '0' follows a move number",
        ),
        ("1.e4 d5 2.-- e5 *", "e4 d5", "column 11: '--' is a null move"),
        ("1. e4 e5 2. Nf3 N f6 *", "e4 e5 Nf3", "'f6' is a pawn's move, or"),
        ("1. e4 2. Nf3 Nc6 *", "e4", "'2.' is not due: Black is to move"),
        ("1. e4 e5) 2. Nf3 *", "e4 e5", "')' has no opening"),
        ("1. e4 e5 " + "9" * 5000 + ". Nf3", "e4 e5 Nf3", "is not due: it is move 2"),
        ("1. e4 e5 (2. Nf3 Nc6 *", "e4 e5", "no closing bracket"),
        ("1. e4 e5 ; 2. Nf3 Nc6", "e4 e5", "a comment with moves"),
        ("1. e4 e5 * 2. Nf3 Nc6", "e4 e5", "after the result"),
    ],
)
def test_a_game_is_kept_up_to_a_token_that_is_not_understood(text: str, kept: str, fault: str) -> None:
    game = game_of(TAGS + text)
    assert moves(game) == kept and any(fault in str(error) for error in game.errors), game.errors


@pytest.mark.parametrize("castling", ["0–0", "O—O", "0-0", "o‑o", "O−O", "О-О", "Kg1"])
def test_dashes_figurines_and_signs_of_books_are_read(castling: str) -> None:
    game = game_of(f"1. e2–e4 e5! 2. ♘︎f3 N ⇆ Nb8—c6 ∞/= [D] 3. ♗c4 (3. — d6) ♝c5⟳ 4. {castling} (=) 1–0")
    assert moves(game) == "e4 e5 Nf3 Nc6 Bc4 Bc5 O-O" and not game.errors
    assert [node.nags for node in game.mainline()] == [set(), {1}, {146, 132}, {45, 220}, set(), {33}, {10}]


@pytest.mark.parametrize("promotion", ["a8(Q)", "a8=Q", "a8/Q", "a8Q", "a8 (Q)", "a8♕", "a8q+"])
def test_a_promotion_is_read_as_books_print_it(promotion: str) -> None:
    game = game_of(f'[FEN "7k/P7/8/8/8/8/8/K7 w - - 0 1"]\n\n1. {promotion} Kg7 2. Qb8 *')
    assert moves(game) == "a8=Q+ Kg7 Qb8" and not game.errors


def written(seed: int) -> chess.pgn.Game:
    """Return a random game with variations, comments and glyphs."""
    rng = random.Random(seed)
    game, board = chess.pgn.Game({"Event": "x", "Result": "1-0"}), chess.Board()
    node: chess.pgn.GameNode = game
    for _ in range(rng.randrange(10, 50)):
        move, other = rng.sample(sorted(board.legal_moves, key=chess.Move.uci), 2)
        parent, node = node, node.add_variation(move)
        if rng.random() < 0.1:
            parent.add_variation(other, comment="why not")
        node.comment = rng.choice([*[""] * 9, "[%clk 0:01:02]"])
        node.nags = {rng.choice([1, 14, 146])} if rng.random() < 0.1 else set()
        board.push(move)
    return game


def mutated(text: str, rng: random.Random) -> str:
    """Return the text with one change of a character or a word among the moves."""
    begin, end = rng.choice([each.span() for each in re.finditer(r"\S+", text) if each.start() > 40])
    at = rng.randrange(begin, end)
    sign = rng.choice("–—,:[]{}<>=#*/'\"~|%&@ 0159xoZк♔½…\u200b")
    changed = text[:at] + text[at + 1 :], text[:at] + sign + text[at:], text[:at] + sign + text[at + 1 :]
    return rng.choice([*changed, text[:begin] + text[end:], text[:end] + " " + text[begin:]])


@pytest.mark.parametrize("seed", range(6))
def test_a_mutated_game_is_the_same_or_named_or_written_so(seed: int) -> None:
    rng, text = random.Random(seed), str(written(seed))
    wanted = moves(game_of(text))
    for _ in range(100):
        changed = mutated(text, rng)
        found = games(changed)
        read = [moves(game) for game in found if not isinstance(game, str)]
        named = len(found) > len(read) or any(game.errors for game in found if not isinstance(game, str))
        if not named and "".join(read) != wanted:
            main = re.sub(r"\{[^}]*\}|\([^()]*\)|\$\d+|\d+\.+|\[.*\]|1-0", "", changed).split()
            plain = [re.sub("[x+#=]", "", line) for line in (" ".join(main), "".join(read))]
            assert plain[0] == plain[1], changed


def test_a_comment_without_end_takes_one_game() -> None:
    text = f"{TAGS}1. e4 {{open\n\n{TAGS}1. d4 {{closed}} d5 *\n\n{TAGS}1. c4 *"
    first, second, third = games(text)
    assert (moves(first), moves(second), moves(third)) == ("e4", "d4 d5", "c4")
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
