# SPDX-License-Identifier: GPL-3.0-or-later
"""A player's tree: options that reach it, and what it keeps when they or the network change."""

from random import Random

import pytest

from engine._core import Batch, Game
from engine.options import OPTIONS, Options
from engine.search.limits import Limits
from engine.search.player.task import SearchTask
from engine.search.player.tree import SearchTree, search_params
from protocol.wire.messages import NetworkInfo
from tests.engine.core.tree.search_helpers import search

SMALL = Options(tree_memory=16, hash=1)


def test_every_search_option_reaches_the_core() -> None:
    """A changed option changes the parameters, but for those that the driver and the output use
    themselves."""
    elsewhere = {
        "minibatch_size", "batches_in_flight", "visits_per_position", "in_flight_factor",
        "second_batch", "look_ahead", "smart_pruning_factor", "smart_pruning_margin",
        "cpuct_at_root", "cpuct_base_at_root", "cpuct_factor_at_root", "fpu_value_at_root",
        "minimum_kld_gain_per_node", "kld_gain_average_interval", "network_constants",
    }  # fmt: skip

    def values(options: Options) -> dict[str, object]:
        params = search_params(options, 1)
        return {name: getattr(params, name) for name in dir(params) if not name.startswith("_")}

    for spec in OPTIONS:
        if spec.section not in ("search", "batching") or spec.name in elsewhere:
            continue
        if isinstance(spec.default, bool):
            other: object = not spec.default
        elif spec.choices:
            other = spec.choices[-1]
        else:
            assert isinstance(spec.default, int | float)
            other = type(spec.default)(spec.low if spec.default != spec.low else spec.low + 1)
        base = Options().changed(cpuct_at_root=3.0)
        assert values(base.changed(**{spec.name: other})) != values(base), spec.name
    own = Options().changed(root_has_own_cpuct=True, fpu_strategy_at_root="absolute")
    for name in ("cpuct_at_root", "cpuct_base_at_root", "cpuct_factor_at_root", "fpu_value_at_root"):
        assert values(own.changed(**{name: 2.5})) != values(own), name


def searched(options: Options, network_hash: str, limits: Limits | None = None) -> tuple[SearchTree, int]:
    """A tree that was searched from the initial position, and its visits."""
    made = SearchTree()
    prepare(made, options, network_hash, limits)
    tree = made.prepared(options, 1, network_hash)
    search(tree, 200)
    return made, tree.root_info().visits


def prepare(tree: SearchTree, options: Options, network_hash: str, limits: Limits | None = None) -> int:
    """Make the initial position the root; returns how many visits it has already."""
    game = Game()
    core = tree.prepared(options, 1, network_hash)
    tree.set_root(SearchTask(game, game.legal_moves(), limits or Limits(), options, 0.0, Random(1)))
    return core.root_info().visits


def test_visits_are_kept_for_the_same_network_alone() -> None:
    tree, visits = searched(SMALL, "one")
    assert prepare(tree, SMALL, "one") == visits > 0
    assert prepare(tree, SMALL, "another") == 0


def test_visits_are_kept_for_the_same_heads_alone() -> None:
    made = SearchTree()
    task = SearchTask(Game(), Game().legal_moves(), Limits(), SMALL, 0.0, Random(1))
    visits = []
    for policy_head, value_head in [("vanilla", "winner"), ("vanilla", "winner"), ("optimistic", "winner")]:
        network = NetworkInfo("net", "hash", 1, policy_head=policy_head, value_head=value_head)
        tree = made.prepared_for(task, network)
        made.set_root(task)
        visits.append(tree.root_info().visits)
        search(tree, 100)
    assert visits == [0, 100, 0]
    batch = Batch(1)
    made.prepared_for(task, NetworkInfo("net", "hash", 1, policy_head="optimistic", value_head="q"))
    assert made.set_root(task).collect(batch, 1).evaluations == 1, "nor is the cache's evaluation one of it"


def test_no_short_game_is_preferred_without_moves_left() -> None:
    tree = SearchTree()
    assert tree.prepared(SMALL, 1, "one").params.moves_left_max_effect > 0
    core = tree.prepared(SMALL, 1, "two", has_moves_left=False)
    assert core.params.moves_left_max_effect == 0
    assert tree.prepared(SMALL, 1, "one", has_moves_left=True).params.moves_left_max_effect > 0


def test_a_new_game_forgets_the_visits() -> None:
    tree, _visits = searched(SMALL, "one")
    tree.new_game()
    assert prepare(tree, SMALL, "one") == 0


def ponder_on(tree: SearchTree, move: str) -> None:
    """Search the position after a move in place of that before it, which the tree keeps."""
    game = Game()
    game.push_uci(move)
    tree.set_root(SearchTask(game, game.legal_moves(), Limits(ponder=True), SMALL, 0.0, Random(1)))
    search(tree.prepared(SMALL, 1, "one"), 50)


def test_endless_analysis_keeps_what_it_has_searched() -> None:
    tree = SearchTree()
    analysis = Limits(infinite=True)

    def go(limits: Limits, *moves: str) -> int:
        game = Game()
        for move in moves:
            game.push_uci(move)
        task = SearchTask(game, game.legal_moves(), limits, SMALL, 0.0, Random(1))
        tree.prepared(SMALL, 1, "a")
        kept = tree.set_root(task).root_info().visits
        search(tree.prepared(SMALL, 1, "a"), kept + 400)
        return kept

    go(analysis, "e2e4")
    assert go(analysis, "e2e4", "e7e5") > 0
    assert go(analysis, "e2e4") >= 400
    assert go(analysis) == 0
    assert go(analysis, "e2e4") >= 1000
    go(Limits(nodes=400))  # a game
    assert go(Limits(nodes=400), "e2e4") > 0
    assert go(Limits(nodes=400)) == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("multipv", 3), ("cpuct", 2.5), ("threads", 2), ("smart_pruning_factor", 0.0), ("hash", 2)],
)
def test_an_option_that_changes_no_value_keeps_the_tree(name: str, value: float) -> None:
    tree, visits = searched(SMALL, "a")
    assert prepare(tree, SMALL.changed(**{name: value}), "a") == visits


def test_search_is_limited_to_legal_moves_asked_for() -> None:
    tree = SearchTree()
    limits = Limits(search_moves=("e2e4", "e2e5", "d2d4"))
    prepare(tree, SMALL, "one", limits)
    core = tree.prepared(SMALL, 1, "one")
    search(core, 50)
    assert {child.move for child in core.children()} == {"e2e4", "d2d4"}


def test_visits_of_a_search_limited_to_other_moves_are_forgotten() -> None:
    """They would say that moves are bad which nobody has looked at."""
    limited = Limits(search_moves=("a2a3", "h2h4"))
    tree, visits = searched(SMALL, "one", limited)
    assert prepare(tree, SMALL, "one", Limits(search_moves=("h2h4",))) == visits > 0
    assert prepare(tree, SMALL, "one", limited) == 0

    tree, visits = searched(SMALL, "one", limited)
    assert prepare(tree, SMALL, "one", limited) == visits
    assert prepare(tree, SMALL, "one") == 0


def test_they_are_forgotten_after_pondering_on_one_of_the_moves_too() -> None:
    tree, visits = searched(SMALL, "one")
    ponder_on(tree, "e2e4")
    assert prepare(tree, SMALL, "one") >= visits > 0

    limited = Limits(search_moves=("a2a3", "h2h4"))
    tree, visits = searched(SMALL, "one", limited)
    ponder_on(tree, "a2a3")
    assert prepare(tree, SMALL, "one", limited) >= visits > 0
    ponder_on(tree, "a2a3")
    assert prepare(tree, SMALL, "one") == 0


def test_visits_limited_to_others_are_kept_when_fair() -> None:
    tree, visits = searched(SMALL, "one", Limits(search_moves=("a2a3",)))
    other = Limits(search_moves=("h2h4",))
    assert prepare(tree, SMALL, "one", other) == visits
    assert prepare(tree, SMALL, "one", other) == visits
    assert prepare(tree, SMALL, "one", Limits(search_moves=("a2a3", "e2e4"))) == 0
