# SPDX-License-Identifier: GPL-3.0-or-later
"""Labelled games for tests: random play, with scores that follow a rule, so that something can be learnt."""

import random
from typing import Any

import numpy as np

from engine._core import Game, encode_games
from engine.apps.shards.move_codes import move_code
from engine.apps.shards.shard import Shard

LINES = 4
NONE = (np.zeros(0, np.uint32), np.zeros(0, np.uint16))


def random_game(seed: int, plies: int, fen: str | None = None) -> Game:
    rng = random.Random(seed)
    game = Game(fen)
    while len(game.moves()) < plies and game.result()[0] == "undecided":
        game.push_uci(rng.choice(game.legal_moves()))
    return game


def encode_line(start: Game, moves: Any, at: Any, branch: Any, asked: Any, *how: Any) -> tuple[Any, ...]:
    """`encode_games` of one game without a prefix."""
    counts = np.array([len(moves)], np.uint16), np.zeros(1, np.uint16)
    return encode_games([start.fen()], np.zeros(1, np.uint8), *counts, moves, at, branch, asked, *how)


def position_labels(game: Game) -> tuple[list[int], list[int]]:
    """Codes and scores of the four best moves, by a rule: the farther a move goes the better."""
    ranked = sorted(game.legal_moves(), key=lambda move: (-move_value(move), move))[:LINES]
    missing = [0] * (LINES - len(ranked))
    return [move_code(move) for move in ranked] + missing, [move_value(move) for move in ranked] + missing


def move_value(move: str) -> int:
    """A score: the farther a move goes the better."""
    steps = abs(ord(move[1]) - ord(move[3]))
    return 10 * steps + 3 * (ord(move[0]) - ord("a")) + (ord(move[2]) - ord("a"))


def labelled_shard(games: int, plies: int, seed: int = 1) -> Shard:
    """Random games from the initial position with a branch at every fifth ply."""
    rng = random.Random(seed)
    columns: dict[str, list[object]] = {name: [] for name in ("fens", "plies", "moves", "lines", "lines_cp")}
    branches: dict[str, list[object]] = {name: [] for name in ("at", "move", "lines", "lines_cp")}
    positions = 0
    for number in range(games):
        played = random_game(seed * 1000 + number, plies).moves()
        game = Game()
        columns["fens"].append(game.fen())
        columns["plies"].append(len(played))
        for ply, move in enumerate(played):
            lines, scores = position_labels(game)
            columns["moves"].append(move_code(move))
            columns["lines"].append(lines)
            columns["lines_cp"].append(scores)
            others = [other for other in game.legal_moves() if other != move]
            if ply % 5 == 4 and others:
                beside = game.copy()
                branch = rng.choice(others)
                beside.push_uci(branch)
                if beside.legal_moves():
                    lines, scores = position_labels(beside)
                    branches["at"].append(positions)
                    branches["move"].append(move_code(branch))
                    branches["lines"].append(lines)
                    branches["lines_cp"].append(scores)
            game.push_uci(move)
            positions += 1
    return _shard(columns, branches)


def _shard(columns: dict[str, list[object]], branches: dict[str, list[object]]) -> Shard:
    def lines_of(given: dict[str, list[object]]) -> tuple[np.ndarray, np.ndarray]:
        lines = np.array(given["lines"], np.uint16).reshape(-1, LINES).T
        scores = np.array(given["lines_cp"], np.int16).reshape(-1, LINES).T
        return np.ascontiguousarray(lines), np.ascontiguousarray(scores)

    lines, scores = lines_of(columns)
    branch_lines, branch_scores = lines_of(branches)
    games = len(columns["plies"])
    return Shard(
        "labels",
        {
            "fens": np.frombuffer("\n".join(map(str, columns["fens"])).encode(), np.uint8),
            "plies": np.array(columns["plies"], np.uint16),
            "prefix": np.zeros(games, np.uint16),
            "results": np.full(games, 2, np.uint8),
            "chess960": np.zeros(games, np.uint8),
            "moves": np.array(columns["moves"], np.uint16),
            "best": lines[0].copy(),
            "best_cp": scores[0].copy(),
            "lines": lines,
            "lines_cp": scores,
            "branch_at": np.array(branches["at"], np.uint32),
            "branch_move": np.array(branches["move"], np.uint16),
            "branch_best": branch_lines[0].copy(),
            "branch_best_cp": branch_scores[0].copy(),
            "branch_lines": branch_lines,
            "branch_lines_cp": branch_scores,
        },
        "made for tests",
    )
