# SPDX-License-Identifier: GPL-3.0-or-later
"""FENs on the command line without quotes."""

import pytest

from engine.options.flags import with_whole_fens

BOARD = "4k3/8/8/8/8/8/8/R3K2R"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            f"bench --fen {BOARD} w KQ - 0 1 --nodes 5",
            ["bench", "--fen", f"{BOARD} w KQ - 0 1", "--nodes", "5"],
        ),
        (f"perft --fen {BOARD} b - e3 3", ["perft", "--fen", f"{BOARD} b - e3", "3"]),
        (f"perft --fen {BOARD} b HA - 10 20 3", ["perft", "--fen", f"{BOARD} b HA - 10 20", "3"]),
        (f"analyse --fen {BOARD}", ["analyse", "--fen", BOARD]),
        (f"analyse --fen {BOARD} x y", ["analyse", "--fen", BOARD, "x", "y"]),
        ("analyse --fen startpos", ["analyse", "--fen", "startpos"]),
        ("perft 3 --fen", ["perft", "3", "--fen"]),
        (f"analyse {BOARD} w - - 0 1", ["analyse", BOARD, "w", "-", "-", "0", "1"]),
    ],
)
def test_the_fields_of_a_fen_are_one_word(line: str, words: list[str]) -> None:
    assert with_whole_fens(line.split()) == words


def test_a_fen_in_quotes_is_left_as_it_is() -> None:
    words = ["bench", "--fen", f"{BOARD} w KQ - 0 1", "--fen", "startpos"]
    assert with_whole_fens(words) == words
