# SPDX-License-Identifier: GPL-3.0-or-later
"""The arguments of commands: those of a table, those that documents name, and FENs without quotes."""

import argparse
import re
from types import ModuleType
from typing import Any

import pytest

from engine.commands import analysis, match, tune
from engine.options.flags import with_whole_fens
from protocol.common.commands import Declared, declare
from tests.engine.flags import parser_of
from tests.paths import REPOSITORY

TABLE: Declared = {
    **dict.fromkeys(("file NAME+", "--json", "--nodes N = 400", "--share X:float", "--match* FLAG"), ""),
    **dict.fromkeys(("--rule KEY?", "--moves MOVE*", "--preset {a,b} = a", "--out FILE = ''"), ""),
    "--size N": (lambda text: 2 * int(text), ""),
    "": {"--white": "", "--black": ""},
}


def test_a_table_declares_arguments_by_their_usage() -> None:
    declare(parser := argparse.ArgumentParser(), TABLE)
    default: dict[str, Any] = {"json": False, "nodes": 400, "share": None, "match": [], "rule": None}
    default |= {"moves": [], "preset": "a", "out": "", "size": None, "white": False, "black": False}
    assert vars(parser.parse_args(["f"])) == {"file": ["f"], **default}
    words = "f g --json --nodes 5 --share 0.5 --match u --match v --size 3 --rule --preset b --white"
    given: dict[str, Any] = {"json": True, "nodes": 5, "share": 0.5, "match": ["u", "v"], "size": 6}
    given |= {"rule": "", "preset": "b", "white": True}
    assert vars(parser.parse_args(words.split())) == {"file": ["f", "g"], **default, **given}
    for refused in ("", "f --nodes x", "f --share x", "f --preset c", "f --white --black"):
        with pytest.raises(SystemExit):
            parser.parse_args(refused.split())


PAGES = {"how-to/matches": match, "how-to/tune-search": tune, "reference/analysis": analysis}


@pytest.mark.parametrize(("page", "command"), PAGES.items(), ids=PAGES)
def test_the_flags_that_a_page_names_exist(page: str, command: ModuleType) -> None:
    text = (REPOSITORY / "docs" / f"{page}.md").read_text("utf-8")
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", text))
    flags = {flag for action in parser_of(command)._actions for flag in action.option_strings}
    assert len(named) >= 3 and named <= flags


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
