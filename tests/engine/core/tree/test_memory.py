"""The memory of the tree: bounded, small, and used again."""

from __future__ import annotations

from engine._core import Batch
from tests.engine.core.tree.search_helpers import MIDDLEGAME, game, new_tree, search


def test_memory_of_moves_not_played_is_used_again() -> None:
    tree = new_tree(game(MIDDLEGAME))
    moves: list[str] = []
    used = []
    for _ in range(12):
        search(tree, 5000)
        used.append(tree.root_info().memory_bytes)
        moves.append(tree.lines(1)[0].moves[0])
        tree.set_position(game(MIDDLEGAME, moves))
    assert max(used) < 2.5 * used[0]


def test_the_tree_keeps_within_its_memory_and_says_when_it_is_full() -> None:
    tree = new_tree(game(MIDDLEGAME), tree_bytes=4 << 20, cache_bytes=1 << 20)
    batch = Batch(128)
    for _ in range(2000):
        result = tree.collect(batch, 128)
        tree.apply_random(batch)
        if result.full:
            break
    info = tree.root_info()
    assert result.full
    assert info.memory_bytes <= 4 << 20
    assert info.hashfull >= 950
    assert sum(child.visits for child in tree.children()) == info.visits - 1
    best = tree.lines(1)[0].moves[0]
    tree.set_position(game(MIDDLEGAME, [best]))  # the rest becomes free
    before = tree.root_info().visits
    search(tree, before + 2000)
    assert tree.root_info().visits == before + 2000


def test_a_visited_node_takes_at_most_300_bytes() -> None:
    # 40 legal moves at the root, about 35 in the tree.
    tree = new_tree(game("r1bq1rk1/pp2bppp/2n1pn2/3p4/3P4/2NBPN2/PP3PPP/R1BQ1RK1 w - - 0 9"), cache_bytes=0)
    search(tree, 20000, batch_size=256)
    assert tree.root_info().memory_bytes / 20000 <= 300 - 96  # 96: the record in the evaluation cache
