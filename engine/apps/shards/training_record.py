# SPDX-License-Identifier: GPL-3.0-or-later
"""lc0's training record, version 6: the training data of one searched position of a game.

8356 bytes, little-endian, packed. Values are for the side to move; policy indices and planes have the board
transform of the network's input format applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag
from math import log
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from engine._core import Game
from engine.evaluation.link.encoding import HistoryFill, encode_games
from protocol.batch import POLICY_SIZE

if TYPE_CHECKING:
    from engine._core import ChildInfo, Evaluation, RootInfo

VERSION = 6
HISTORY_PLANES = 104
CLASSICAL = 1
CASTLING_PLANE = 2

RECORD_DTYPE = np.dtype(
    [
        ("version", "<u4"),
        ("input_format", "<u4"),
        ("probabilities", "<f4", (POLICY_SIZE,)),
        ("planes", "<u8", (HISTORY_PLANES,)),
        ("castling_us_ooo", "u1"),
        ("castling_us_oo", "u1"),
        ("castling_them_ooo", "u1"),
        ("castling_them_oo", "u1"),
        ("side_to_move_or_enpassant", "u1"),
        ("rule50_count", "u1"),
        ("invariance_info", "u1"),
        ("dummy", "u1"),
        ("root_q", "<f4"),
        ("best_q", "<f4"),
        ("root_d", "<f4"),
        ("best_d", "<f4"),
        ("root_m", "<f4"),
        ("best_m", "<f4"),
        ("plies_left", "<f4"),
        ("result_q", "<f4"),
        ("result_d", "<f4"),
        ("played_q", "<f4"),
        ("played_d", "<f4"),
        ("played_m", "<f4"),
        ("orig_q", "<f4"),
        ("orig_d", "<f4"),
        ("orig_m", "<f4"),
        ("visits", "<u4"),
        ("played_idx", "<u2"),
        ("best_idx", "<u2"),
        ("policy_kld", "<f4"),
        ("q_st", "<f4"),
    ]
)
"""probabilities: share of the visits, -1 for illegal moves. planes: the bits of each byte (a rank) reversed.
castling: 1 if allowed; in formats other than 1, the bit of the rook's file. m, plies_left: plies. orig_*: the
network's own evaluation, NaN if unknown. policy_kld: divergence of the visits from the raw policy, in nats.
q_st: standard deviation of the values that visits returned to the root."""

RECORD_BYTES = 8356
assert RECORD_DTYPE.itemsize == RECORD_BYTES

Records = NDArray[np.void]
"""RECORD_DTYPE [n]: the positions of a game, in order."""


class Info(IntFlag):
    """Bits of invariance_info; the lowest three are the board transform."""

    BEST_IS_PROVEN = 1 << 3
    LENGTH_LIMIT = 1 << 4
    ADJUDICATED = 1 << 5
    DELETED = 1 << 6
    BLACK_TO_MOVE = 1 << 7


TRANSFORM_BITS = 7

_REVERSED_BYTES = np.array([int(f"{byte:08b}"[::-1], 2) for byte in range(256)], dtype=np.uint8)
_LEAST_POLICY = 1e-38
"""Smaller than any other probability of the search tree; for logarithms."""


def reverse_ranks(planes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return bitboards with the bits of every byte (a rank) reversed; its own inverse."""
    return np.ascontiguousarray(_REVERSED_BYTES[np.ascontiguousarray(planes).view(np.uint8)]).view(np.uint64)


def is_canonical(input_format: int) -> bool:
    """Return True if a format transforms the board and omits the side to move."""
    return input_format not in (CLASSICAL, CASTLING_PLANE)


@dataclass(frozen=True, slots=True)
class Encoding:
    """The input encoding of the network that plays."""

    input_format: int
    history_fill: HistoryFill = "fen_only"


@dataclass(frozen=True, slots=True)
class GameEnd:
    """The end of a game.

    result: of White, 1, 0 or -1. adjudicated: not ended by the rules of chess, but by resignation or, if
    length_limit is set, by its length."""

    result: int
    adjudicated: bool = False
    length_limit: bool = False


def make_record(
    game: Game, encoding: Encoding, root: RootInfo, children: Sequence[ChildInfo], played: str
) -> Records:
    """Return the record [1] of a searched position, before the game's end is known.

    root, children: of the tree; children best first. played: the move played, in UCI notation.
    """
    batch, transforms = encode_games(
        [game], input_format=encoding.input_format, history_fill=encoding.history_fill
    )
    planes = batch.positions["planes"][0]
    index = {move: int(entry) for move, entry in zip(game.legal_moves(), batch.moves, strict=True)}
    record = np.zeros(1, RECORD_DTYPE)
    record["version"] = VERSION
    record["input_format"] = encoding.input_format
    record["planes"][0] = reverse_ranks(planes[:HISTORY_PLANES])
    _set_state(record, game, planes, encoding.input_format, int(transforms[0]))
    best = children[0]
    if best.proof is not None:
        record["invariance_info"] |= np.uint8(Info.BEST_IS_PROVEN)

    shares, divergence = _policy(children)
    record["probabilities"] = -1.0
    record["probabilities"][0, list(index.values())] = 0.0  # Tablebases may exclude legal moves.
    for child, share in zip(children, shares, strict=True):
        record["probabilities"][0, index[child.move]] = share
    record["policy_kld"] = divergence
    record["visits"] = root.visits
    record["q_st"] = root.q_deviation
    record["best_idx"], record["played_idx"] = index[best.move], index[played]

    chosen = next(child for child in children if child.move == played)
    _set_evaluation(record, "root", root.evaluation)
    _set_evaluation(record, "best", best.evaluation if best.visits else root.evaluation)
    _set_evaluation(record, "played", chosen.evaluation if chosen.visits else root.evaluation)
    own = root.own_evaluation
    record["orig_q"], record["orig_d"], record["orig_m"] = (
        (own.q, own.d, own.m) if own is not None else (np.nan, np.nan, np.nan)
    )
    return record


def finish_game(records: Sequence[Records], white_to_move: Sequence[bool], end: GameEnd) -> Records:
    """Return the records of a finished game, with its result.

    white_to_move: of each record. plies_left counts down to the game's last ply; in an adjudicated game, to
    the end that the last search expected (best_m), as in lc0.
    """
    game = np.concatenate(records)
    plies = len(game)
    expected = max(1.0, float(game["best_m"][-1])) if end.adjudicated else 1.0
    game["plies_left"] = expected + np.arange(plies - 1, -1, -1, dtype=np.float32)
    sign = np.where(np.asarray(white_to_move, dtype=bool), 1, -1)
    game["result_q"] = sign * end.result
    game["result_d"] = float(end.result == 0)
    if end.adjudicated:
        game["invariance_info"] |= np.uint8(Info.ADJUDICATED)
    if end.length_limit:
        game["invariance_info"] |= np.uint8(Info.LENGTH_LIMIT)
    return game


def _set_state(
    record: Records, game: Game, planes: NDArray[np.uint64], input_format: int, transform: int
) -> None:
    """Set castling, side to move, en passant and the 50-move counter."""
    black = game.turn == "black"
    names = ("castling_us_ooo", "castling_us_oo", "castling_them_ooo", "castling_them_oo")
    if input_format == CLASSICAL:
        rights = [int(plane != 0) for plane in planes[104:108]]
    else:
        # Planes 104 and 105 have both sides' rooks; a board with castling rights is not transformed.
        a_side, h_side = int(planes[104]), int(planes[105])
        rights = [a_side & 0xFF, h_side & 0xFF, a_side >> 56, h_side >> 56]
    for name, right in zip(names, rights, strict=True):
        record[name] = right
    if is_canonical(input_format):
        record["side_to_move_or_enpassant"] = int(planes[108]) >> 56
        record["invariance_info"] = transform | (Info.BLACK_TO_MOVE if black else 0)
    else:
        record["side_to_move_or_enpassant"] = int(black)
    record["rule50_count"] = min(game.rule50, 255)


def _set_evaluation(record: Records, prefix: str, evaluation: Evaluation) -> None:
    # Clamp means of many floats, which rounding may move out of their ranges.
    record[f"{prefix}_q"] = max(-1.0, min(1.0, evaluation.q))
    record[f"{prefix}_d"] = max(0.0, min(1.0 - abs(evaluation.q), evaluation.d))
    record[f"{prefix}_m"] = max(0.0, evaluation.m)


def _policy(children: Sequence[ChildInfo]) -> tuple[list[float], float]:
    """Return each move's share of the visits, and their divergence from the network's policy.

    Without visits (a search of one node) the shares are that policy.
    """
    policy = [max(child.policy, _LEAST_POLICY) for child in children]
    visits = sum(child.visits for child in children)
    if not visits:
        return policy, 0.0
    shares = [child.visits / visits for child in children]
    divergence = sum(share * log(share / prior) for share, prior in zip(shares, policy, strict=True) if share)
    return shares, max(0.0, divergence)


def black_to_move(record: np.void) -> bool:
    """Return True if Black is to move in the record's position."""
    if is_canonical(int(record["input_format"])):
        return bool(record["invariance_info"] & Info.BLACK_TO_MOVE)
    return bool(record["side_to_move_or_enpassant"])


def transform_of(record: np.void) -> int:
    """Return the board transform of a record's planes, 0 to 7."""
    return int(record["invariance_info"]) & TRANSFORM_BITS if is_canonical(int(record["input_format"])) else 0
