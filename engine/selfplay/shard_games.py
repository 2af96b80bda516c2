# SPDX-License-Identifier: GPL-3.0-or-later
"""Conversion of games with lc0's training records to the columns of a shard."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine._core import Game, encode_line
from engine.selfplay.chunk import TrainingDataError
from engine.selfplay.decode import black_to_move, fen_of
from engine.selfplay.shard import SEARCH_COLUMNS, Shard
from engine.selfplay.training_record import Info

PROMOTIONS = " nbrq"
NO_BRANCH = (np.zeros(0, np.uint32), np.zeros(0, np.uint16))


def columns_of(start: Game, moves: list[str], prefix: int, records: NDArray[np.void]) -> dict[str, Any]:
    """Return one game's part of every column of a shard of kind "search".

    start: before the first move, castling as king takes rook. moves: UCI. prefix: number of moves before the
    first record. records: RECORD_DTYPE [len(moves) - prefix]. Raises TrainingDataError for a policy that is
    not over the legal moves or does not add up to 1.
    """
    codes = _codes(start, moves)
    count = len(records)
    input_format = int(records[0]["input_format"])
    nothing = np.zeros((len(codes), 0), np.uint16)
    _, _, _, offsets, policy, legal_codes, _ = encode_line(
        start, codes, *NO_BRANCH, nothing, input_format, "fen_only"
    )
    visited, visited_moves, shares, best = [], [], [], []
    for i, record in enumerate(records):
        here = slice(offsets[prefix + i], offsets[prefix + i + 1])
        probabilities = record["probabilities"]
        legal = policy[here]
        if len(np.setxor1d(np.flatnonzero(probabilities >= 0), legal)):
            raise TrainingDataError(
                f"record {i + 1}: its policy is not of the legal moves of {fen_of(record)}"
            )
        share = probabilities[legal].astype(np.float64)
        if not abs(share.sum() - 1) < 1e-2:
            raise TrainingDataError(f"record {i + 1}: its policy adds up to {share.sum():.3f}")
        with_visits = np.flatnonzero(share > 0)
        visited.append(len(with_visits))
        visited_moves.append(legal_codes[here][with_visits])
        shares.append(np.rint(np.minimum(1, share[with_visits]) * 65535).astype(np.uint16))
        best.append(
            legal_codes[here][int(np.flatnonzero(legal == record["best_idx"])[0])]
            if int(record["best_idx"]) in legal
            else legal_codes[here][int(share.argmax())]
        )
    white = not black_to_move(records[0])
    result = float(records[0]["result_q"]) * (1 if white else -1)
    values = {
        "root": ("root_q", "root_d", "root_m"),
        "best_child": ("best_q", "best_d", "best_m"),
        "played_child": ("played_q", "played_d", "played_m"),
        "own": ("orig_q", "orig_d", "orig_m"),
        "result": ("result_q", "result_d"),
    }
    return {
        "fen": start.fen(),
        "plies": len(codes),
        "prefix": prefix,
        "results": {1.0: 1, -1.0: 0, 0.0: 2}.get(result, 3),
        "moves": codes,
        "visits": records["visits"],
        **{name: np.stack([records[part] for part in parts]) for name, parts in values.items()},
        "plies_left": records["plies_left"],
        "proven": (records["invariance_info"] & Info.BEST_IS_PROVEN != 0).astype(np.uint8),
        "best": np.array(best, np.uint16),
        "visited": np.array(visited, np.uint8),
        "visited_move": np.concatenate(visited_moves),
        "visited_share": np.concatenate(shares),
        "count": count,
    }


def _codes(start: Game, moves: list[str]) -> NDArray[np.uint16]:
    """Return UCI moves as codes. Castling is king takes rook, as in Chess960."""
    squares = {
        f"{file}{rank + 1}": 8 * rank + place for rank in range(8) for place, file in enumerate("abcdefgh")
    }
    return np.array(
        [
            squares[move[:2]]
            | squares[move[2:4]] << 6
            | (PROMOTIONS.index(move[4]) if len(move) > 4 else 0) << 12
            for move in moves
        ],
        np.uint16,
    )


def shard_of(games: list[dict[str, Any]], source: str) -> Shard:
    """Return a shard of games from `columns_of`. source: see `Shard`."""
    columns: dict[str, NDArray[Any]] = {
        "fens": np.frombuffer("\n".join(game["fen"] for game in games).encode(), np.uint8),
        "plies": np.array([game["plies"] for game in games], np.uint16),
        "prefix": np.array([game["prefix"] for game in games], np.uint16),
        "results": np.array([game["results"] for game in games], np.uint8),
        # Castling as king takes rook, which is equivalent in standard games.
        "chess960": np.ones(len(games), np.uint8),
        "moves": np.concatenate([game["moves"] for game in games]),
    }
    for name, dtype in SEARCH_COLUMNS.items():
        joined = np.concatenate([game[name] for game in games], axis=-1)
        columns[name] = np.ascontiguousarray(joined.astype(dtype))
    return Shard("search", columns, source)
