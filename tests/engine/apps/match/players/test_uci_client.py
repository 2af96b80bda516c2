# SPDX-License-Identifier: GPL-3.0-or-later
"""What UCI programs say, and how they are spoken to."""

import asyncio
import sys

import chess
import pytest

from engine.apps.match.config import PlayerConfig
from engine.apps.match.players.player import Clocks, Position
from engine.apps.match.players.program import go_line
from engine.apps.match.players.uci_client import (
    ProgramGoneError,
    UciAnswer,
    UciClient,
    UciError,
    UciOption,
    parse_answer,
    parse_option,
)
from engine.apps.match.timecontrol import GameClock, TimeControl
from tests.engine.apps.match.matches import PROGRAM


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("option name Hash type spin default 16 min 1 max 1024", UciOption("Hash", "spin", 1, 1024)),
        ("option name Clear Hash type button", UciOption("Clear Hash", "button")),
        ("option name Debug Log File type string default ", UciOption("Debug Log File", "string")),
        (
            "option name Style type combo default Normal var Solid var Normal var Very Risky",
            UciOption("Style", "combo", choices=("Solid", "Normal", "Very Risky")),
        ),
        ("option name UCI_LimitStrength type check default false\r", UciOption("UCI_LimitStrength", "check")),
        ("option name X type spin default 1 min a max 99999999999999999999", UciOption("X", "spin")),
        ("option name nothing", None),
        ("option", None),
        ("info string option name Hash type spin", None),
    ],
)
def test_options(line: str, option: UciOption | None) -> None:
    assert parse_option(line) == option


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        (UciOption("Hash", "spin", 1, 1024), 64, "64"),
        (UciOption("Hash", "spin", 1, 1024), "64", "64"),
        (UciOption("Ponder", "check"), True, "true"),
        (UciOption("Ponder", "check"), "False", "false"),
        (UciOption("Style", "combo", choices=("Solid", "Normal")), "normal", "normal"),
        (UciOption("Book", "string"), None, ""),
    ],
)
def test_values_of_options(option: UciOption, value: str | int | bool | None, text: str) -> None:
    assert option.text(value) == text


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        (UciOption("Hash", "spin", 1, 1024), 4096, "Hash is 1 to 1024, not 4096"),
        (UciOption("Hash", "spin", 1, 1024), "much", "whole number"),
        (UciOption("Ponder", "check"), 1, "true or false"),
        (UciOption("Style", "combo", choices=("Solid", "Normal")), "Wild", "one of Solid, Normal"),
    ],
)
def test_wrong_values_of_options(option: UciOption, value: str | int, message: str) -> None:
    with pytest.raises(UciError, match=message):
        option.text(value)


@pytest.mark.parametrize(
    ("lines", "answer"),
    [
        ("bestmove e2e4", UciAnswer("e2e4")),
        ("bestmove (none)\r", UciAnswer(None)),
        ("bestmove", UciAnswer(None)),
        (
            "info depth 3 score cp 9 nodes 1\ninfo depth 8 seldepth 11 score cp -31 nodes 950 pv e2e4 nodes\n"
            "info depth 9 currmove e2e4\nbestmove e2e4 ponder e7e5",
            UciAnswer("e2e4", score_cp=-31, depth=8, selective_depth=11, nodes=950, ponder="e7e5"),
        ),
        ("info depth 20 score mate -3 nodes 5\nbestmove a2a3", UciAnswer("a2a3", mate=-3, depth=20, nodes=5)),
        (
            "info depth 5 multipv 1 score cp 40\ninfo depth 5 multipv 2 score cp 10\nbestmove a2a3",
            UciAnswer("a2a3", score_cp=40, depth=5),
        ),
        (
            "info depth 5 score cp 40\ninfo depth 6 score cp 90 lowerbound\nbestmove a2a3",
            UciAnswer("a2a3", score_cp=40, depth=5),
        ),
        ("info depth 6 score cp 90 upperbound\nbestmove a2a3", UciAnswer("a2a3", score_cp=90, depth=6)),
        ("info depth x score cp y nodes\ninfo string score cp 5\nbestmove a2a3", UciAnswer("a2a3")),
        ("\xff score cp 5\ninfo score mate\nbestmove a2a3", UciAnswer("a2a3")),
    ],
)
def test_answers(lines: str, answer: UciAnswer) -> None:
    assert parse_answer(lines.encode("latin-1") + b"\n") == answer


def test_positions_are_reported_as_the_mode_of_the_game_writes_them() -> None:
    position = Position(chess.Board())
    assert position.uci_line == "position startpos"
    assert position.push(chess.Move.from_uci("e2e4")) == "e2e4"
    position.push(chess.Move.from_uci("e7e5"))
    assert position.uci_line == "position startpos moves e2e4 e7e5"

    fen = "4k2r/5p2/8/8/8/8/5P2/4K2R w Kk - 0 1"
    position = Position(chess.Board(fen))
    assert position.push(chess.Move.from_uci("e1g1")) == "e1g1"
    assert position.uci_line == f"position fen {fen} moves e1g1"

    board = chess.Board(fen, chess960=True)
    board.push_uci("e1h1")
    position = Position(board)
    assert position.uci_line == "position fen 4k2r/5p2/8/8/8/8/5P2/4K2R w Hh - 0 1 moves e1h1"
    assert position.push(board.parse_san("O-O")) == "e8h8"


def test_limits_are_reported() -> None:
    clocks = Clocks(
        GameClock(TimeControl(base_ms=60_000, increment_ms=600, moves=40)),
        GameClock(TimeControl(base_ms=30_000)),
    )
    white = PlayerConfig("w", clocks.white.control)
    assert go_line(white, chess.WHITE, clocks) == "go wtime 60000 winc 600 btime 30000 binc 0 movestogo 40"
    black = PlayerConfig("b", TimeControl(base_ms=30_000, nodes=500, depth=9))
    assert (
        go_line(black, chess.BLACK, clocks) == "go wtime 60000 winc 600 btime 30000 binc 0 depth 9 nodes 500"
    )
    free = Clocks(GameClock(TimeControl(movetime_ms=50)), GameClock(TimeControl(nodes=1)))
    assert go_line(PlayerConfig("w", TimeControl(movetime_ms=50)), chess.WHITE, free) == "go movetime 50"


@pytest.mark.parametrize("arguments", [(), ("garbage",)])
async def test_a_program_answers_and_garbage_is_skipped(arguments: tuple[str, ...]) -> None:
    client = await UciClient.start([sys.executable, str(PROGRAM), *arguments])
    try:
        await client.initialise()
        client.configure({"threads": 2})
        for _ in range(2):
            await client.new_game()
            answer = await client.search("position startpos", "go nodes 1")
            assert answer.move == "a2a3"
            assert arguments or answer == UciAnswer("a2a3", 15, depth=7, selective_depth=9, nodes=42)
        await client.close()
        assert not client.alive
    finally:
        client.kill()


async def test_a_program_that_ends_is_noticed_with_its_last_words() -> None:
    client = await UciClient.start([sys.executable, str(PROGRAM), "crash", "0", "\x1b[2Jout of\tchess"])
    await client.initialise()
    with pytest.raises(ProgramGoneError):
        await client.search("position startpos", "go nodes 1")
    with pytest.raises(ProgramGoneError):
        await client.ping()
    assert client.pid is None
    client.kill()
    assert tuple(client.last_words) == ("?[2Jout of chess",)  # Nothing that would clear a terminal.


async def test_abandoned_search_is_ended_before_the_next_game() -> None:
    client = await UciClient.start([sys.executable, str(PROGRAM), "hang", "1"])
    try:
        await client.initialise()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.search("position startpos moves e2e4", "go infinite"), 0.05)
        await client.new_game()
        assert (await client.search("position startpos", "go nodes 1")).move == "a2a3"
    finally:
        client.kill()
