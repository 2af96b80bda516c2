# SPDX-License-Identifier: GPL-3.0-or-later
"""The policy tables against lc0's, and against what they mean."""

import json
from typing import Any

import numpy as np
import pytest

from evaluator.network.policy_tables import (
    attention_map,
    convolution_map,
    position_encoding,
    source_of_policy,
)
from protocol.policy import policy_moves
from tests.paths import DATA


@pytest.fixture(scope="module")
def tables() -> dict[str, list[Any]]:
    read: dict[str, list[Any]] = json.loads((DATA / "lc0" / "tables.json").read_text())
    return read


def test_moves_are_lc0s(tables: dict[str, list[Any]]) -> None:
    assert list(policy_moves()) == tables["policy_moves"]


def test_attention_map_is_lc0s(tables: dict[str, list[Any]]) -> None:
    assert attention_map().tolist() == tables["attention_map"]


def test_convolution_map_is_lc0s(tables: dict[str, list[Any]]) -> None:
    assert convolution_map().tolist() == tables["conv_map"]


def test_position_encoding_is_lc0s(tables: dict[str, list[Any]]) -> None:
    assert np.array_equal(position_encoding(), tables["position_encoding"])


def test_castling_is_king_takes_rook() -> None:
    assert policy_moves()[103] == "e1h1"
    assert policy_moves()[97] == "e1a1"


@pytest.mark.parametrize("table", [attention_map(), convolution_map()])
def test_every_policy_entry_has_one_source(table: np.ndarray) -> None:
    source = source_of_policy(table)
    assert np.array_equal(table[source], np.arange(1858))
    assert np.count_nonzero(table >= 0) == 1858
