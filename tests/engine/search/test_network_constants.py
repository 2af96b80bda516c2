# SPDX-License-Identifier: GPL-3.0-or-later
"""Search constants that were tuned for a network."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

import evaluator.networks
from engine._core import Game, SearchParams, Tree
from engine.options import Options
from engine.search.levels import with_network
from engine.search.limits import Limits
from engine.search.network_constants import CONSTANTS, MOST_NODES, with_network_constants
from engine.search.task import SearchTask
from engine.search.tree import CORE_OPTIONS, SearchTree
from protocol.messages import NetworkInfo
from tests.engine.core.tree.search_helpers import search

TUNED = next(iter(CONSTANTS))
SMALL = Options(hash=1, tree_memory=16)
FEW = Limits(nodes=MOST_NODES)


def prepared(tree: SearchTree, limits: Limits, options: Options = SMALL, content_hash: str = TUNED) -> Tree:
    """Return the tree for a search of the initial position with the network."""
    game = Game()
    task = SearchTask(game, game.legal_moves(), limits, options, 0.0, Random(1))
    core = tree.prepared_for(task, NetworkInfo("net", content_hash, 1))
    tree.set_root(task)
    return core


def params_of(options: Options, content_hash: str, limits: Limits = FEW) -> SearchParams:
    """Return what the core gets for a search with the network."""
    return prepared(SearchTree(), limits, options, content_hash).params


def test_the_table_names_included_networks() -> None:
    folder = Path(evaluator.networks.__path__[0])
    included = {hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.glob("*.pb.gz")}
    assert CONSTANTS.keys() <= included, "tune the new network, or remove the constants of the old one"


@pytest.mark.parametrize("content_hash", CONSTANTS)
def test_a_search_with_the_network_has_its_constants(content_hash: str) -> None:
    params = params_of(SMALL, content_hash)
    for name, value in CONSTANTS[content_hash].items():
        if name in CORE_OPTIONS:
            assert getattr(params, name) == pytest.approx(value) != getattr(Options(), name)


def test_other_networks_have_those_of_lc0() -> None:
    params = params_of(SMALL, "ab" * 32)
    for name in CONSTANTS[TUNED]:
        if name in CORE_OPTIONS:
            assert getattr(params, name) == pytest.approx(getattr(Options(), name))


@pytest.mark.parametrize(
    "limits",
    [Limits(), Limits(nodes=MOST_NODES + 1), Limits(nodes=100, movetime_ms=1000), Limits(infinite=True)],
)
def test_larger_searches_have_those_of_lc0(limits: Limits) -> None:
    assert params_of(SMALL, TUNED, limits).cpuct == pytest.approx(Options().cpuct)


def test_a_search_of_few_nodes_keeps_a_large_tree() -> None:
    tree = SearchTree()
    search(prepared(tree, Limits(infinite=True)), 20_000)
    core = prepared(tree, FEW)
    assert core.root_info().visits == 20_000
    assert core.params.cpuct == pytest.approx(Options().cpuct)
    tree.new_game()
    assert prepared(tree, FEW).params.cpuct == pytest.approx(CONSTANTS[TUNED]["cpuct"])


def test_searches_of_few_nodes_keep_their_tree() -> None:
    tree = SearchTree()
    for visits in (1000, 3000, 20_000):
        core = prepared(tree, FEW)
        search(core, visits)
        assert core.root_info().visits == visits
        assert core.params.cpuct == pytest.approx(CONSTANTS[TUNED]["cpuct"])


def test_a_changed_option_keeps_its_value() -> None:
    params = params_of(replace(SMALL, cpuct=2.5), TUNED)
    assert params.cpuct == 2.5
    assert params.policy_temperature == pytest.approx(CONSTANTS[TUNED]["policy_temperature"])


def test_the_constants_can_be_switched_off() -> None:
    off = replace(SMALL, network_constants=False)
    assert with_network_constants(off, TUNED, FEW) == off
    assert params_of(off, TUNED).cpuct == pytest.approx(Options().cpuct)


def test_levels_keep_the_constants_of_their_calibration() -> None:
    level = with_network(Options(limit_strength=True, elo=1500))
    assert with_network_constants(level, TUNED, FEW) == level
