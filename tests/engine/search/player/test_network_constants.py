# SPDX-License-Identifier: GPL-3.0-or-later
"""Search constants that were tuned for a network."""

import hashlib
from dataclasses import replace
from itertools import pairwise
from math import log
from pathlib import Path
from random import Random

import pytest

import evaluator.networks
from engine._core import Game, SearchParams, Tree
from engine.options import Options
from engine.search.limits import Clock, Limits
from engine.search.player.network_constants import CONSTANTS, with_network_constants
from engine.search.player.task import SearchTask
from engine.search.player.tree import CORE_OPTIONS, SearchTree
from engine.search.strength.levels import with_network
from protocol.wire.messages import NetworkInfo
from tests.engine.core.tree.search_helpers import search

TUNED, CPU = CONSTANTS
SMALL = Options(hash=1, tree_memory=16)
LIMITS = (
    Limits(nodes=1500),
    Limits(infinite=True),
    Limits(movetime_ms=1000),
    Limits(nodes=1_000_000),
    Limits(clock=Clock(180_000, 180_000)),
    Limits(nodes=100, movetime_ms=1000),
)


def prepared(tree: SearchTree, limits: Limits, options: Options = SMALL, content_hash: str = TUNED) -> Tree:
    """Return the tree for a search of the initial position with the network."""
    game = Game()
    task = SearchTask(game, game.legal_moves(), limits, options, 0.0, Random(1))
    core = tree.prepared_for(task, NetworkInfo("net", content_hash, 1))
    tree.set_root(task)
    return core


def params_of(options: Options, content_hash: str) -> SearchParams:
    """Return what the core gets for a search with the network."""
    return prepared(SearchTree(), LIMITS[0], options, content_hash).params


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


@pytest.mark.parametrize("content_hash", [*CONSTANTS, "ab" * 32])
def test_the_tree_stays_when_the_limits_change(content_hash: str) -> None:
    tree = SearchTree()
    core = prepared(tree, LIMITS[0], content_hash=content_hash)
    search(core, 500)
    before = core.params.cpuct, core.params.policy_temperature
    for limits in (*LIMITS[1:], *LIMITS):
        core = prepared(tree, limits, content_hash=content_hash)
        assert core.root_info().visits == 500
        assert (core.params.cpuct, core.params.policy_temperature) == before


def exploration(params: SearchParams, visits: int) -> float:
    """Return PUCT's factor below the root."""
    return params.cpuct + params.cpuct_factor * log(1 + visits / params.cpuct_base)


def test_exploration_grows_from_the_tuned_to_that_of_lc0() -> None:
    cpu, lc0 = (params_of(SMALL, name) for name in (CPU, "ab" * 32))
    shares = [exploration(cpu, visits) / exploration(lc0, visits) for visits in (30, 300, 3000, 10_000)]
    assert shares[0] < 0.6
    assert all(small < large for small, large in pairwise(shares))
    for visits in (10_000, 30_000, 100_000):
        assert exploration(cpu, visits) == pytest.approx(exploration(lc0, visits), rel=0.1)


def test_a_changed_option_keeps_its_value() -> None:
    params = params_of(replace(SMALL, cpuct=2.5), TUNED)
    assert params.cpuct == 2.5
    assert params.policy_temperature == pytest.approx(CONSTANTS[TUNED]["policy_temperature"])


def test_the_constants_can_be_switched_off() -> None:
    off = replace(SMALL, network_constants=False)
    assert with_network_constants(off, TUNED) == off
    assert params_of(off, TUNED).cpuct == pytest.approx(Options().cpuct)


def test_levels_keep_the_constants_of_their_calibration() -> None:
    level = with_network(Options(limit_strength=True, elo=1500))
    assert with_network_constants(level, TUNED) == level
