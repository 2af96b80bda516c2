# SPDX-License-Identifier: GPL-3.0-or-later
"""Tablebase probes per second on one thread, next to python-chess, and the cost of tables for a search.

    python -m benchmarks.search.tablebases FOLDER

The positions are random ones for each table in the folder, alternately. Times are CPU times and include the
calls from Python.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import chess
import chess.syzygy

from engine._core import Batch, Game, SearchParams, Tablebases, Tree

POSITIONS = 100
"""Positions per table."""

SECONDS = 1.0
"""Minimum seconds of each measurement."""

VISITS = 100_000


def random_positions(names: list[str]) -> list[chess.Board]:
    """Return random legal positions with the material of the tables, alternately."""
    random = Random(1)
    boards: list[chess.Board] = []
    while len(boards) < POSITIONS * len(names):
        white, black = names[len(boards) % len(names)].split("v")
        men = white + black.lower()
        board = chess.Board(None)
        for square, symbol in zip(random.sample(range(64), len(men)), men, strict=True):
            board.set_piece_at(square, chess.Piece.from_symbol(symbol))
        board.turn = random.random() < 0.5
        if board.is_valid():
            boards.append(board)
    return boards


def per_second(probe: Callable[[int], object], count: int) -> float:
    """Return calls per second of `probe`, over all numbers below `count` in turn."""
    probes = 0
    start = time.process_time()
    while (seconds := time.process_time() - start) < SECONDS:
        for index in range(count):
            probe(index)
        probes += count
    return probes / seconds


def nodes_per_second(fen: str, tables: Tablebases | None) -> tuple[float, int]:
    """Return nodes/s of a search with random evaluations (best of three) and its tablebase hits."""
    best, hits = 0.0, 0
    for _ in range(3):
        params = SearchParams()
        params.tablebases = tables
        tree = Tree(params)
        tree.set_position(Game(fen))
        batch = Batch(256)
        start = time.process_time()
        while (visits := tree.root_info().visits) < VISITS:
            if (
                tree.collect(batch, 256, VISITS - visits).evaluations == 0
                and tree.root_info().visits == visits
            ):
                break
            tree.apply_random(batch)
        best = max(best, tree.root_info().visits / (time.process_time() - start))
        hits = tree.root_info().tablebase_hits
    return best, hits


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="with Syzygy tables")
    folder: Path = parser.parse_args().folder
    names = sorted(path.stem for path in folder.glob("*.rtbw"))
    if not names:
        parser.error(f"no tables (.rtbw) in {folder}")
    boards = random_positions(names)
    games = [Game(board.fen()) for board in boards]
    tables = Tablebases([folder])
    print(f"{len(names)} tables, {len(boards)} positions")
    with chess.syzygy.open_tablebase(str(folder)) as peer:
        measured = {
            "WDL": (lambda i: tables.probe_wdl(games[i]), lambda i: peer.get_wdl(boards[i])),
            "DTZ": (lambda i: tables.probe_dtz(games[i]), lambda i: peer.get_dtz(boards[i])),
        }
        print(f"{'probes/s':20}{'Wavefront':>12}{'python-chess':>15}")
        for name, (ours, others) in measured.items():
            print(
                f"{name:20}{per_second(ours, len(boards)):>12,.0f}{per_second(others, len(boards)):>15,.0f}"
            )
    print(f"{'nodes/s':20}{'tables':>12}{'no tables':>15}{'tbhits':>12}")
    for name, fen in (
        ("initial position", chess.STARTING_FEN),
        ("rook endgame", "8/8/1p2k3/8/3R4/3KP3/8/5r2 w - - 0 1"),
    ):
        with_tables, hits = nodes_per_second(fen, tables)
        without, _ = nodes_per_second(fen, None)
        print(f"{name:20}{with_tables:>12,.0f}{without:>15,.0f}{hits:>12,}")


if __name__ == "__main__":
    main()
