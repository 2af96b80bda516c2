# SPDX-License-Identifier: GPL-3.0-or-later
"""What En Croissant shows of the engine: its commands are replayed, and its rule is applied to every line.

En Croissant collects `info` lines into a block. A line belongs to the block if its `multipv` is the next
number. A block of k lines is shown if all have one depth that is not below the last one shown; k is MultiPV
or the number of legal moves, whichever is smaller. Read from its source, commit 9654961.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import chess
import pytest

from tests.engine.uci.uci_process import UciProcess
from tests.paths import TABLES

START = chess.STARTING_FEN
ENDINGS = [
    "8/8/4k3/8/8/4K3/4P3/8 w - - 0 1",  # some moves win, the others draw
    "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1",
    "4k3/4P3/8/4K3/8/8/8/8 b - - 0 1",  # one legal move
    "8/8/8/8/8/1k6/1p6/K7 w - - 0 1",
    "8/8/8/4k3/8/8/3q4/7K w - - 0 1",  # all moves lose
    "7k/8/5KQ1/8/8/8/8/8 w - - 0 1",  # mate in one, stalemate, and long wins
    "8/8/8/3k4/8/3K4/3B1N2/8 w - - 0 1",
]


@dataclass(frozen=True, slots=True)
class Shown:
    """A line of a block. score: in words of UCI, for the side to move."""

    move: str
    depth: int
    score: str
    nodes: int


@dataclass(slots=True)
class Display:
    """The part of En Croissant that decides what is shown for a position."""

    board: chess.Board
    multipv: int
    blocks: list[list[Shown]] = field(default_factory=list)
    refused: list[list[Shown]] = field(default_factory=list)
    block: list[Shown] = field(default_factory=list)
    last_depth: int = 0

    @property
    def wanted(self) -> int:
        return min(self.multipv, self.board.legal_moves.count())

    def read(self, lines: Sequence[str]) -> None:
        for line in lines:
            words = line.split()
            if words[:2] == ["info", "string"] or "pv" not in words or words[0] != "info":
                continue
            assert "lowerbound" not in words and "upperbound" not in words
            board = self.board.copy()
            for move in words[words.index("pv") + 1 :]:
                board.push_uci(move)  # A PV with an illegal move is dropped there.
            number = int(words[words.index("multipv") + 1])
            if number != len(self.block) + 1:
                continue
            found = re.search(r"score ((?:cp|mate) -?\d+)", line)
            assert found
            after = {name: words[words.index(name) + 1] for name in ("pv", "depth", "nodes")}
            self.block.append(Shown(after["pv"], int(after["depth"]), found[1], int(after["nodes"])))
            if number == self.wanted:
                depth = self.block[-1].depth
                good = depth >= self.last_depth and all(each.depth == depth for each in self.block)
                (self.blocks if good else self.refused).append(self.block)
                if good:
                    self.last_depth = depth
                self.block = []


class EnCroissant:
    """Sends to an engine what En Croissant sends."""

    def __init__(self, engine: UciProcess) -> None:
        self.engine = engine
        self.options: dict[str, str] = {}
        self.position = ""

    def start(self) -> None:
        options = self.engine.ask("uci", "uciok")
        for name in ("MultiPV", "Threads", "Hash"):  # Its form needs these.
            assert any(line.startswith(f"option name {name} type spin") for line in options), name
        self.engine.ask("isready", "readyok")

    def analyse(self, fen: str, moves: Sequence[str], go: str, **options: str) -> Display:
        """Send a position as for a step through a game; options that did not change are not sent."""
        if fen != self.position:
            self.engine.send("setoption name UCI_Chess960 value false")
        for name, value in options.items():
            if self.options.get(name) != value:
                self.engine.send(f"setoption name {name} value {value}")
        self.options |= options
        self.position = fen
        tail = f" moves {' '.join(moves)}" if moves else ""
        self.engine.send(f"position fen {fen}{tail}")
        self.engine.send(go)
        board = chess.Board(fen)
        for move in moves:
            board.push_uci(move)
        return Display(board, int(self.options.get("MultiPV", "1")))


@pytest.fixture(scope="module")
def croissant() -> Iterator[EnCroissant]:
    with UciProcess() as engine:
        program = EnCroissant(engine)
        program.start()
        yield program


def is_complete(display: Display) -> bool:
    moves = {line.move for line in display.blocks[-1]}
    return len(moves) == display.wanted and moves <= {move.uci() for move in display.board.legal_moves}


@pytest.mark.parametrize("multipv", ["1", "3", "20", "500"])
def test_every_block_is_shown(croissant: EnCroissant, multipv: str) -> None:
    display = croissant.analyse(START, [], "go nodes 3000", MultiPV=multipv, Threads="0", Hash="64")
    display.read(croissant.engine.until("bestmove"))
    assert is_complete(display)
    assert not display.refused and not display.block
    depths = [block[0].depth for block in display.blocks]
    assert all(first <= second for first, second in pairwise(depths))


def test_steps_through_a_game_show_lines_of_each_position(croissant: EnCroissant) -> None:
    """`stop`, its last lines, then the next position."""
    game = ["e2e4", "e7e5", "g1f3", "b8c6", "f1b5", "a7a6", "e1g1"]
    engine = croissant.engine
    for length in range(len(game) + 1):
        display = croissant.analyse(START, game[:length], "go infinite", MultiPV="5", Threads="0")
        while not display.blocks:
            display.read(engine.until("info depth"))
        display.read(engine.ask("stop", "bestmove"))
        assert is_complete(display)
        assert not display.refused


@pytest.mark.parametrize("multipv", ["2", "5", "500"])
def test_moves_that_tablebases_leave_out_have_lines(croissant: EnCroissant, multipv: str) -> None:
    for fen in ENDINGS:
        display = croissant.analyse(fen, [], "go nodes 300", MultiPV=multipv, SyzygyPath=str(TABLES))
        display.read(croissant.engine.until("bestmove"))
        assert display.blocks, (fen, display.block, display.wanted)
        assert is_complete(display)
        assert not display.refused and not display.block


def test_lines_of_moves_omitted_say_what_tablebases_know(croissant: EnCroissant) -> None:
    display = croissant.analyse(ENDINGS[0], [], "go nodes 300", MultiPV="500", SyzygyPath=str(TABLES))
    display.read(croissant.engine.until("bestmove"))
    scores = {line.move: line.score for line in display.blocks[-1]}
    won = {"e3d4", "e3e4", "e3f4"}
    assert {move for move, score in scores.items() if int(score.split()[1]) > 19_000} == won
    assert {score for move, score in scores.items() if move not in won} == {"cp 0"}


def test_a_report_gets_two_lines_for_each_position(croissant: EnCroissant) -> None:
    """Its report of a game sends MultiPV 2, and no `stop`."""
    game = ["d2d4", "d7d5", "c2c4"]
    for length in range(len(game) + 1):
        display = croissant.analyse(START, game[:length], "go depth 3", MultiPV="2")
        display.read(croissant.engine.until("bestmove"))
        assert len(display.blocks[-1]) == 2
