# SPDX-License-Identifier: GPL-3.0-or-later
"""The tree against a plain PUCT search written from the formulas, one visit at a time."""

from __future__ import annotations

import pytest

from tests.engine.core.tree.plain_node import Rules
from tests.engine.core.tree.plain_search import assert_the_same_search
from tests.engine.core.tree.search_helpers import MIDDLEGAME

POSITIONS = [MIDDLEGAME, "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 b - - 0 1", "4k3/P7/8/8/8/8/7p/4K3 w - - 0 1"]


@pytest.mark.parametrize("fen", POSITIONS)
def test_the_tree_visits_what_plain_puct_visits(fen: str) -> None:
    assert_the_same_search(fen, 600, Rules())
