# SPDX-License-Identifier: GPL-3.0-or-later
"""The test vectors that ship with the protocol are what engine and evaluator say."""

import json
from typing import Any

import chess
import numpy as np
import pytest

from evaluator.backends import open_backend
from protocol.batch import POSITION_DTYPE, PositionBatch
from protocol.wire.codec import check_batch
from scripts import protocol_vectors
from tests.engine.core.encoding import reference_encoder
from tests.protocol.kit.vectors import vectors

VECTORS = vectors()


def named(vector: dict[str, Any]) -> str:
    return f"{vector['shows']}, format {vector['input_format']}"


def board_of(vector: dict[str, Any]) -> chess.Board:
    fen = chess.STARTING_FEN if vector["fen"] == "startpos" else vector["fen"]
    return chess.Board(fen, chess960=vector["chess960"])


def batch_of(vector: dict[str, Any]) -> PositionBatch:
    return PositionBatch(
        np.frombuffer(bytes.fromhex(vector["record"]), POSITION_DTYPE),
        np.array([0, len(vector["policy_indices"])], np.uint32),
        np.array(vector["policy_indices"], np.uint16),
    )


def test_the_file_is_what_the_command_makes() -> None:
    assert json.loads(protocol_vectors.document()) == VECTORS


def test_every_format_and_every_kind_of_transform_is_there() -> None:
    assert {vector["input_format"] for vector in VECTORS} == set(reference_encoder.FORMATS)
    assert {vector["transform"] for vector in VECTORS} >= {0, 1, 3, 4, 7}


@pytest.mark.parametrize("vector", VECTORS, ids=named)
def test_the_bytes_are_those_of_the_format(vector: dict[str, Any]) -> None:
    """By the encoder of the tests, which has nothing of the engine's."""
    start = board_of(vector)
    board = start.copy()
    moves = [board.push_uci(text) for text in vector["moves"]]
    planes, rule50, transform = reference_encoder.encode(
        reference_encoder.snapshots(start, moves), vector["input_format"], "fen_only"
    )
    batch = batch_of(vector)
    assert batch.positions["planes"][0].tolist() == planes
    assert (float(batch.positions["rule50"][0]), vector["transform"]) == (rule50, transform)
    assert sorted(board.parse_uci(text).uci() for text in vector["legal_moves"]) == sorted(
        move.uci() for move in board.legal_moves
    )


@pytest.mark.parametrize("vector", VECTORS, ids=named)
def test_numbers_are_float32_to_the_bit(vector: dict[str, Any]) -> None:
    batch = batch_of(vector)
    check_batch(batch)
    answer = open_backend("random", None).evaluate(batch)
    assert np.array_equal(answer.logits, np.array(vector["logits"], np.float32))
    assert np.array_equal(answer.wdl[0], np.array(vector["wdl"], np.float32))
    assert answer.moves_left[0] == np.float32(vector["moves_left"])
