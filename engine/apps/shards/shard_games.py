# SPDX-License-Identifier: GPL-3.0-or-later
"""Conversion of games with lc0's training records to the columns of a shard."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine._core import Game, encode_games
from engine.apps.shards.chunk import TrainingDataError
from engine.apps.shards.move_codes import move_code
from engine.apps.shards.shard import KINDS, UNKNOWN_PLIES, Shard
from engine.apps.shards.shard_coding import Columns, share_bytes, wdl_bytes
from engine.apps.shards.training_record import black_to_move

RESULTS = {(255, 0): 1, (0, 255): 0, (0, 0): 2}
"""Results of games by `wdl_bytes`. A rescorer's fractions are undecided."""

NO_BRANCH = (np.zeros(0, np.uint32), np.zeros(0, np.uint16))


def columns_of(
    start: Game, moves: list[str], prefix: int, records: NDArray[np.void], number: int = 0
) -> Columns:
    """Return the columns of a shard of kind "search" with one game.

    start: before the first move, castling as king takes rook. moves: UCI. prefix: number of moves before the
    first record. records: RECORD_DTYPE [len(moves) - prefix]. number: see SEARCH_COLUMNS. Raises
    TrainingDataError for a policy that is not over the legal moves or does not add up to 1.
    """
    codes = np.array([move_code(move) for move in moves], np.uint16)
    input_format = int(records[0]["input_format"])
    counts = np.array([len(codes)], np.uint16), np.array([prefix], np.uint16)
    nothing = np.zeros((len(records), 0), np.uint16)
    _, _, _, offsets, policy, legal_codes, _, _ = encode_games(
        [start.fen()], np.ones(1, np.uint8), *counts, codes, *NO_BRANCH, nothing, input_format, "fen_only"
    )
    policies, best = [], []
    for i, record in enumerate(records):
        here = slice(offsets[i], offsets[i + 1])
        probabilities = record["probabilities"]
        legal = policy[here]
        if len(np.setxor1d(np.flatnonzero(probabilities >= 0), legal)):
            raise TrainingDataError(f"record {i + 1}: its policy is not of its position's legal moves")
        share = probabilities[legal]
        total = float(share.sum(dtype=np.float64))
        if not abs(total - 1) < 1e-2:
            raise TrainingDataError(f"record {i + 1}: its policy adds up to {total:.3f}")
        policies.append(share)
        place = np.flatnonzero(legal == record["best_idx"])
        best.append(legal_codes[here][place[0] if len(place) else int(share.argmax())])
    with np.errstate(divide="ignore"):
        nats = np.maximum(0, -np.log(np.concatenate(policies)))
    black = (np.arange(len(records)) + black_to_move(records[0])) % 2 == 1
    ended = wdl_bytes(_wdl(records, "result"))
    result = np.where(black, ended[::-1], ended)
    # Older versions of records know no values: the result replaces them.
    searched = np.where(np.isnan(records["root_q"]), ended, wdl_bytes(_wdl(records, "root")))
    plies_left = np.nan_to_num(records["plies_left"], nan=UNKNOWN_PLIES).clip(0, UNKNOWN_PLIES)
    return {
        "fens": np.frombuffer(start.fen().encode(), np.uint8),
        "plies": np.array([len(codes)], np.uint16),
        "prefix": np.array([prefix], np.uint16),
        "results": np.array([RESULTS.get(tuple(result[:, 0].tolist()), 3)], np.uint8),
        # Castling as king takes rook, which is equivalent in standard games.
        "chess960": np.ones(1, np.uint8),
        "moves": codes,
        "number": np.array([number], np.uint32),
        "best": np.array(best, np.uint16),
        "policy": share_bytes(nats),
        "wdl": searched,
        "result": result,
        "plies_left": np.rint(plies_left).astype(np.uint16),
    }


def _wdl(records: NDArray[np.void], name: str) -> NDArray[np.float32]:
    """Return WDL [n, 3] of the records' q = W - L and d; a draw where they are unknown."""
    q, d = np.nan_to_num(records[f"{name}_q"]), np.nan_to_num(records[f"{name}_d"], nan=1.0).clip(0, 1)
    q = np.clip(q, d - 1, 1 - d)
    return np.stack([(1 - d + q) / 2, d, (1 - d - q) / 2], axis=1)


def shard_of(games: Sequence[Columns], source: str) -> Shard:
    """Return a shard of games from `columns_of`, or from shards. source: see `Shard`."""
    columns = {
        name: np.ascontiguousarray(np.concatenate([game[name] for game in games], axis=-1))
        for name in KINDS["search"]
        if name != "fens"
    }
    fens = b"\n".join(bytes(game["fens"]) for game in games)
    return Shard("search", {"fens": np.frombuffer(fens, np.uint8), **columns}, source)
