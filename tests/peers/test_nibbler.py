# SPDX-License-Identifier: GPL-3.0-or-later
"""What Nibbler reads from the engine: its commands are replayed, and its parser's rules are applied.

Nibbler takes the engine for one like lc0, by its name. It sends options without looking at the list, always
sets UCI_Chess960, and reads every `info` line. Read from its source, commit b844f2d.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import chess
import pytest

from tests.engine.uci.uci_process import UciProcess
from tests.paths import TABLES

LC0_NAMES = ("Lc0", "Leela", "Ceres")
"""A name with one of these makes an engine one like lc0. Case matters."""

FORCED = {
    "LogLiveStats": "true",
    "MoveOverheadMs": "0",
    "MultiPV": "500",
    "ScoreType": "WDL_mu",
    "SmartPruningFactor": "0",
    "UCI_ShowWDL": "true",
    "VerboseMoveStats": "true",
}
"""Sent to an engine like lc0, listed or not."""

STANDARD = {
    "ContemptMode": "white_side_analysis",
    "Contempt": "0",
    "WDLCalibrationElo": "0",
    "WDLEvalObjectivity": "0",
}
"""Sent if listed."""

ENDING, STALEMATE_TRAP = "8/8/4k3/8/8/4K3/4P3/8 w - - 0 1", "7k/8/5KQ1/8/8/8/8/8 w - - 0 1"
POSITIONS = {
    "start": chess.STARTING_FEN,
    "many moves": "R6R/3Q4/1Q4Q1/4Q3/2Q4Q/Q4Q2/pp1Q4/kBNN1KB1 w - - 0 1",
    "one move": "7k/8/8/8/8/8/6q1/7K w - - 0 1",
    "castling": "r3k2r/pppq1ppp/2npbn2/2b1p3/2B1P3/2NPBN2/PPPQ1PPP/R3K2R w KQkq - 0 1",
    "promotion": "8/P6k/8/8/8/1p6/p6K/8 w - - 0 1",
    "mate": "7k/p7/1p3K2/6Q1/8/8/8/8 w - - 0 1",
}

NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)")


def number(text: str) -> float | None:
    """Return the number that a text begins with, as JavaScript's parseFloat does; None without one."""
    found = NUMBER.match(text)
    return float(found[0]) if found else None


def value_after(words: Sequence[str], key: str) -> float | None:
    """Return the number in the word after the first `key`, which may end with a bracket."""
    for word, following in pairwise(words):
        if word == key:
            return number(following.removesuffix(")"))
    return None


@dataclass(slots=True)
class Move:
    """What Nibbler knows of a move. order: the later in a block of statistics, the better."""

    pv: list[str] = field(default_factory=list)
    multipv: float | None = None
    wdl: tuple[int, int, int] | None = None
    score: float | None = None
    order: int = 0
    statistics: dict[str, float | None] = field(default_factory=dict)


@dataclass(slots=True)
class Table:
    """Nibbler's table of a position. nodes: as last told. blocks: of statistics that came to their end."""

    board: chess.Board
    moves: dict[str, Move] = field(default_factory=dict)
    nodes: float | None = None
    blocks: int = 0
    unknown: list[str] = field(default_factory=list)
    order: int = 1

    def read(self, lines: Sequence[str]) -> None:
        for line in lines:
            words = line.split()
            if words[:1] != ["info"]:
                continue
            if "pv" in words:
                self._line(line, words)
            elif words[:2] == ["info", "string"]:
                self._statistics(line, words)

    def _line(self, line: str, words: list[str]) -> None:
        pv = words[words.index("pv") + 1 :]
        board = self.board.copy()
        for text in pv:
            move = chess.Move.from_uci(text)
            assert move in board.legal_moves, f"{text} in {line}"
            board.push(move)
        entry = self.moves.setdefault(pv[0], Move())
        entry.pv, entry.multipv = pv, value_after(words, "multipv")
        entry.score = value_after(words, "cp")
        if entry.score is None:
            entry.score = value_after(words, "mate")
        assert entry.score is not None, line
        for key in ("depth", "seldepth", "time", "nodes", "nps", "tbhits"):
            assert value_after(words, key) is not None, (key, line)
        self.nodes = value_after(words, "nodes")
        at = words.index("wdl")
        win, draw, loss = (int(word) for word in words[at + 1 : at + 4])
        assert win + draw + loss == 1000
        entry.wdl = (win, draw, loss)

    def _statistics(self, line: str, words: list[str]) -> None:
        assert "," not in line or words[2] not in self.moves  # It reads commas as points.
        if words[2] == "node":
            self.order = 1
            self.blocks += 1
            self.nodes = value_after(words, "N:")
            assert self.nodes is not None, line
            return
        try:
            legal = chess.Move.from_uci(words[2]) in self.board.legal_moves
        except ValueError:
            legal = False
        if not legal:
            self.unknown.append(line)
            return
        entry = self.moves.setdefault(words[2], Move())
        entry.order, self.order = self.order, self.order + 1
        keys = ("N:", "(P:", "(Q:", "(D:", "(U:", "(S:", "(V:", "(M:")
        entry.statistics = {key.strip("(:"): value_after(words, key) for key in keys}

    @property
    def legal(self) -> set[str]:
        """The legal moves, castling as the king takes the rook."""
        return {self.board.uci(move, chess960=True) for move in self.board.legal_moves}


class Nibbler:
    """Sends to an engine what Nibbler sends."""

    def __init__(self, engine: UciProcess) -> None:
        self.engine = engine

    def start(self, **chosen: str) -> None:
        """Start as for an engine that was just chosen. chosen: options that the user has set."""
        lines = self.engine.ask("uci", "uciok")
        (name,) = (line for line in lines if line.startswith("id name"))
        assert any(each in name for each in LC0_NAMES)
        listed = {
            line.split(" type ")[0].removeprefix("option name ").lower()
            for line in lines
            if line.startswith("option name")
        }
        sent = {"UCI_Chess960": "true"} if "uci_chess960" in listed else {}
        sent |= FORCED | {name: value for name, value in STANDARD.items() if name.lower() in listed}
        for option, value in (sent | chosen).items():
            self.engine.send(f"setoption name {option} value {value}")
        answers = self.engine.ask("isready", "readyok")
        assert not [line for line in answers if "error" in line or "unknown" in line], answers
        self.engine.send("ucinewgame")

    def analyse(self, fen: str, go: str) -> Table:
        board = chess.Board(fen, chess960=True)
        self.engine.send(f"position fen {board.shredder_fen()}")
        self.engine.send(go)
        return Table(board)


@pytest.fixture(scope="module")
def nibbler() -> Iterator[Nibbler]:
    with UciProcess() as engine:
        program = Nibbler(engine)
        program.start()
        yield program


@pytest.fixture(scope="module")
def with_tablebases() -> Iterator[Nibbler]:
    with UciProcess() as engine:
        program = Nibbler(engine)
        program.start(SyzygyPath=str(TABLES))
        yield program


def check(table: Table, searched: set[str]) -> None:
    """Check that each legal move has a line, and each searched one its statistics.

    Best first: multipv has no gap, and the best move is the last of the statistics.
    """
    assert not table.unknown
    assert set(table.moves) == table.legal
    lines = sorted(table.moves.values(), key=lambda move: move.multipv or 0.0)
    assert [line.multipv for line in lines] == list(range(1, len(lines) + 1))
    assert table.blocks
    with_statistics = {name: move.statistics for name, move in table.moves.items() if move.statistics}
    assert set(with_statistics) == searched
    for name, read in with_statistics.items():
        for key in ("N", "P", "Q", "U", "S"):
            assert read[key] is not None, (name, key)
        if read["N"]:
            assert read["D"] is not None and read["M"] is not None, name
    assert sum(read["N"] or 0 for read in with_statistics.values()) <= (table.nodes or 0)
    assert sum(read["P"] or 0 for read in with_statistics.values()) == pytest.approx(100, abs=2)
    assert [move.order for move in table.moves.values() if move.statistics]
    orders = {name: table.moves[name].order for name in searched}
    visits = {name: with_statistics[name]["N"] or 0 for name in searched}
    assert visits[max(orders, key=lambda name: orders[name])] == max(visits.values())


@pytest.mark.parametrize("name", POSITIONS)
def test_every_move_has_a_line_and_statistics(nibbler: Nibbler, name: str) -> None:
    table = nibbler.analyse(POSITIONS[name], "go nodes 500")
    table.read(nibbler.engine.until("bestmove"))
    check(table, table.legal)


def test_the_networks_value_is_shown_of_visited_moves(nibbler: Nibbler) -> None:
    table = nibbler.analyse(chess.STARTING_FEN, "go nodes 800")
    table.read(nibbler.engine.until("bestmove"))
    read = [move.statistics for move in table.moves.values()]
    assert all(each["V"] is not None for each in read if (each["N"] or 0) > 0)


def test_an_endless_analysis_is_shown_while_it_runs(nibbler: Nibbler) -> None:
    table = nibbler.analyse(POSITIONS["castling"], "go infinite")
    while table.blocks < 3:
        table.read(nibbler.engine.until("info string node"))
    assert not table.unknown
    assert set(table.moves) == table.legal
    table.read(nibbler.engine.ask("stop", "bestmove"))
    check(table, table.legal)


@pytest.mark.parametrize("fen", [ENDING, STALEMATE_TRAP])
def test_moves_that_tablebases_leave_out_have_lines(with_tablebases: Nibbler, fen: str) -> None:
    table = with_tablebases.analyse(fen, "go nodes 400")
    table.read(with_tablebases.engine.until("bestmove"))
    searched = {name for name, move in table.moves.items() if move.statistics}
    assert searched < table.legal
    assert not table.unknown
    assert set(table.moves) == table.legal
    lines = sorted(table.moves.values(), key=lambda move: move.multipv or 0.0)
    assert [line.multipv for line in lines] == list(range(1, len(lines) + 1))
    for name in table.legal - searched:
        assert table.moves[name].wdl in ((0, 1000, 0), (1000, 0, 0), (0, 0, 1000))
