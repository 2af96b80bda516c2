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


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("policy_moves", policy_moves()),
        ("attention_map", attention_map()),
        ("conv_map", convolution_map()),
        ("position_encoding", position_encoding()),
    ],
)
def test_tables_are_lc0s(name: str, table: Any) -> None:
    assert np.array_equal(table, json.loads((DATA / "lc0" / "tables.json").read_text())[name])


@pytest.mark.parametrize("table", [attention_map(), convolution_map()])
def test_every_policy_entry_has_one_source(table: np.ndarray) -> None:
    source = source_of_policy(table)
    assert np.array_equal(table[source], np.arange(1858))
    assert np.count_nonzero(table >= 0) == 1858
