# SPDX-License-Identifier: GPL-3.0-or-later
"""The root's moves: lines, restriction to some of them, noise and spelling."""

from collections.abc import Callable
from zlib import crc32

import numpy as np
import pytest

from engine._core import Batch, Tree
from tests.engine.core.tree.search_helpers import MIDDLEGAME, children_by_move, game, new_tree, params, search


def test_lines_of_moves_without_visits_come_by_prior() -> None:
    tree = new_tree(game())
    assert tree.lines(5) == []
    search(tree, 4)
    lines = tree.lines(30)
    assert [line.visits for line in lines[:4]] == [1, 1, 1, 0]
    assert {line.moves[0] for line in lines} == set(game().legal_moves())
    unvisited = [line for line in lines if line.visits == 0]
    assert [line.prior for line in unvisited] == sorted((line.prior for line in unvisited), reverse=True)
    assert all(len(line.moves) == 1 for line in unvisited)


def test_moves_without_visits_are_valued_as_the_search_does() -> None:
    tree = new_tree(game())
    search(tree, 4)
    unvisited = [child for child in tree.children() if child.visits == 0]
    visited_policy = sum(child.prior for child in tree.children() if child.visits)
    first_play = tree.root_info().evaluation.q - params().fpu_value * visited_policy**0.5
    for child in unvisited:
        assert child.value == pytest.approx(first_play, abs=1e-6)
        assert child.score == pytest.approx(child.value + child.exploration, abs=1e-6)
    for line in tree.lines(30):
        if line.visits == 0:
            assert line.evaluation.q == pytest.approx(first_play, abs=1e-6)
            assert all(0 <= share <= 1 for share in line.evaluation.wdl)


def test_the_search_continues_where_the_score_is_highest() -> None:
    tree = new_tree(game(MIDDLEGAME))
    search(tree, 500)
    before = {child.move: child for child in tree.children()}
    search(tree, 501)
    (visited,) = (child.move for child in tree.children() if child.visits != before[child.move].visits)
    assert visited == max(before.values(), key=lambda child: child.score).move


def test_depth_counts_the_root_and_leaves_out_kept_visits() -> None:
    tree = new_tree(game())
    search(tree, 1)
    assert (tree.root_info().mean_depth, tree.root_info().max_depth) == (1, 1)
    search(tree, 2)
    assert (tree.root_info().mean_depth, tree.root_info().max_depth) == (1.5, 2)
    tree.set_position(game())
    assert (tree.root_info().mean_depth, tree.root_info().max_depth) == (0, 0)


def test_the_search_may_be_limited_to_some_root_moves() -> None:
    tree = new_tree(game(MIDDLEGAME))
    tree.set_root_moves(["a2a3", "h2h4"])
    search(tree, 1000)
    assert {child.move for child in tree.children()} == {"a2a3", "h2h4"}
    assert sum(child.visits for child in tree.children()) == 999
    assert len(tree.lines(10)) == 2
    tree.set_root_moves([])
    search(tree, 3000)
    assert sum(child.visits for child in tree.children()) == 2999
    assert len(tree.children()) == len(game(MIDDLEGAME).legal_moves())
    with pytest.raises(ValueError, match="e2e5"):
        tree.set_root_moves(["e2e5"])


@pytest.mark.parametrize("batch_size", [1, 32])
def test_each_line_that_is_shown_gets_a_minimum_of_visits(batch_size: int) -> None:
    lines = 5

    def visits_of_lines(multipv: int) -> list[int]:
        tree = new_tree(game(MIDDLEGAME), cpuct_at_root=0.05, cpuct_factor_at_root=0.0, multipv=multipv)
        search(tree, 4000, batch_size)
        assert tree.root_info().visits == 4000
        return sorted(line.visits for line in tree.lines(lines))

    least = 4000 // (4 * lines)
    assert visits_of_lines(1)[0] < least / 2
    shown = visits_of_lines(lines)
    assert shown[0] >= least - batch_size
    assert shown[-1] > 3 * shown[0]


def test_proven_or_excluded_moves_take_no_visits_of_lines() -> None:
    tree = new_tree(game("6k1/5ppp/8/8/8/8/5PPP/R5K1 w - - 0 1"), multipv=4)  # a mate in one
    tree.set_root_moves(["a1a8", "a1a2"])
    search(tree, 400)
    assert {line.moves[0] for line in tree.lines(4) if line.visits} == {"a1a8", "a1a2"}


@pytest.mark.parametrize("share", [1.0, 0.7, 0.3, 0.01])
def test_best_move_has_the_best_value_with_enough_visits(share: float) -> None:
    tree = new_tree(game(MIDDLEGAME), value_choice_share=share)
    search(tree, 700)
    children = tree.children()
    most = max(child.visits for child in children)
    enough = [child for child in children if child.visits >= share * most]
    best = max(enough, key=lambda child: child.evaluation.q)
    assert children[0].move == tree.lines(1)[0].moves[0] == best.move
    # A random evaluator prefers nothing for long: with a small share another move than the most visited wins.
    assert (best.visits == most) == (share > 0.5)
    rest = [child.visits for child in children if child not in enough]
    assert rest == sorted(rest, reverse=True)


def test_the_root_may_have_a_policy_temperature_of_its_own() -> None:
    position = game(MIDDLEGAME)
    usual, flat = new_tree(position), new_tree(position, policy_temperature_at_root=2.2)
    for tree in (usual, flat):
        search(tree, 1)
    priors = {move: child.prior for move, child in children_by_move(usual).items()}
    powers = {move: prior ** (1.359 / 2.2) for move, prior in priors.items()}
    expected = {move: power / sum(powers.values()) for move, power in powers.items()}
    found = children_by_move(flat)
    assert {move: child.prior for move, child in found.items()} == pytest.approx(expected, rel=1e-4)
    policies = [{m: c.policy for m, c in children_by_move(tree).items()} for tree in (usual, flat)]
    assert policies[0] == policies[1]
    powers = {move: prior**1.359 for move, prior in priors.items()}
    assert policies[0] == pytest.approx({m: p / sum(powers.values()) for m, p in powers.items()}, rel=1e-4)
    search(flat, 700)
    search(usual, 700)
    assert [child.visits for child in flat.children()] != [child.visits for child in usual.children()]

    # Below the root nothing changes: what was the root's child has the priors that it has elsewhere.
    best = flat.children()[0].move
    below = new_tree(game(MIDDLEGAME, [best]))
    search(below, 1)
    flat.set_params(params())
    flat.set_position(game(MIDDLEGAME, [best]))
    assert flat.root_info().visits > 1
    assert {move: child.prior for move, child in children_by_move(flat).items()} == {
        move: child.prior for move, child in children_by_move(below).items()
    }


@pytest.mark.parametrize("visits_before", [0, 500])
def test_root_noise_mixes_into_the_priors_once(visits_before: int) -> None:
    plain, noisy = new_tree(game(MIDDLEGAME)), new_tree(game(MIDDLEGAME))
    for tree in (plain, noisy):
        search(tree, visits_before)
    noisy.add_root_noise(0.25, 0.3, seed=7)
    for tree in (plain, noisy):
        search(tree, 2000)
    priors = [{move: child.prior for move, child in children_by_move(t).items()} for t in (plain, noisy)]
    noise = {move: (priors[1][move] - 0.75 * priors[0][move]) / 0.25 for move in priors[0]}
    assert sum(noise.values()) == pytest.approx(1.0, abs=0.01)
    assert min(noise.values()) > -0.001
    assert max(noise.values()) > 0.2  # alpha 0.3: few moves get most of it
    assert sum(child.visits for child in noisy.children()) == noisy.root_info().visits - 1
    assert all(child.in_flight == 0 for child in noisy.children())
    policies = [{m: c.policy for m, c in children_by_move(tree).items()} for tree in (plain, noisy)]
    assert policies[0] == pytest.approx(policies[1], rel=1e-5)

    noisy.add_root_noise(0.25, 0.3, seed=8)  # it has noise already
    assert {move: child.prior for move, child in children_by_move(noisy).items()} == priors[1]

    noisy.set_position(game(MIDDLEGAME, ["e1g1"]))  # the next position has none of it
    plain.set_position(game(MIDDLEGAME, ["e1g1"]))
    for tree in (plain, noisy):
        search(tree, tree.root_info().visits + 10)
    after = [{move: child.prior for move, child in children_by_move(t).items()} for t in (plain, noisy)]
    assert after[0] == after[1]


@pytest.mark.parametrize(("epsilon", "alpha"), [(-0.1, 0.3), (1.1, 0.3), (0.25, 0.0), (float("nan"), 0.3)])
def test_senseless_noise_is_refused(epsilon: float, alpha: float) -> None:
    tree = new_tree(game())
    with pytest.raises(ValueError, match="noise"):
        tree.add_root_noise(epsilon, alpha, seed=1)


QUEEN_AND_PAWNS = "6k1/5pp1/7p/8/8/8/5PPP/3Q2K1 w - - 0 1"


def search_won(tree: Tree, visits: int, lengths: Callable[[bytes], float]) -> None:
    """Search a position that is equally won in all lines for the side with a queen.

    lengths: of the game in plies, by encoded position.
    """
    batch = Batch(1)
    while tree.root_info().visits < visits:
        result = tree.collect(batch, 1, 1)
        if not result.evaluations:
            assert result.visits_done
            tree.cancel(batch)
            continue
        encoded = batch.positions[0].tobytes()
        mover_has_queen = any(encoded[32:40])
        wdl = [0.96, 0.03, 0.01] if mover_has_queen else [0.01, 0.03, 0.96]
        tree.apply(
            batch,
            np.zeros(batch.move_count, np.float32),
            np.array([wdl], np.float32),
            np.array([lengths(encoded)], np.float32),
        )


def test_the_quicker_of_equal_wins_is_chosen() -> None:
    tree = new_tree(game(QUEEN_AND_PAWNS), value_choice_share=0.2)
    search_won(tree, 400, lambda encoded: 20 + crc32(encoded) % 100)
    children = tree.children()
    enough = [child for child in children if child.visits >= 0.2 * max(each.visits for each in children)]
    assert len(enough) > 3
    quickest = min(enough, key=lambda child: child.evaluation.m)
    assert max(child.evaluation.q for child in enough) - quickest.evaluation.q < 0.01
    assert children[0].move == tree.lines(1)[0].moves[0] == quickest.move


def test_a_winning_side_does_not_return_to_an_earlier_position() -> None:
    fresh = new_tree(game(QUEEN_AND_PAWNS))
    search_won(fresh, 200, lambda _: 50)
    best = fresh.lines(1)[0].moves[0]
    back = best[2:4] + best[0:2]
    repeated = new_tree(game(QUEEN_AND_PAWNS, [best, "g8h7", back, "h7g8"]))
    search_won(repeated, 200, lambda _: 50)
    assert repeated.lines(1)[0].moves[0] != best
    assert repeated.lines(40)[0].visits >= 0.2 * max(line.visits for line in repeated.lines(40))
