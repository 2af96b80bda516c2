# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of the search tree share: a tree driven to a number of visits, without an evaluator."""

from collections.abc import Sequence

from engine._core import Batch, ChildInfo, Game, Proof, RootInfo, SearchParams, Tree

MIDDLEGAME = "r1bqk2r/pppp1ppp/2n2n2/2b1p3/2B1P3/2N2N2/PPPP1PPP/R1BQK2R w KQkq - 6 5"


def params(**settings: object) -> SearchParams:
    """Search parameters with small memory; keyword arguments override the defaults."""
    made = SearchParams()
    made.tree_bytes = 64 << 20
    made.cache_bytes = 8 << 20
    for name, value in settings.items():
        setattr(made, name, value)
    return made


def game(fen: str | None = None, moves: Sequence[str] = (), chess960: bool = False) -> Game:
    made = Game(fen, chess960)
    for move in moves:
        made.push_uci(move)
    return made


def new_tree(position: Game | None = None, **settings: object) -> Tree:
    tree = Tree(params(**settings))
    if position is not None:
        tree.set_position(position)
    return tree


def search(tree: Tree, visits: int, batch_size: int = 32) -> None:
    """Search until the root has this many visits or nothing more can be done."""
    batch = Batch(batch_size)
    while (missing := visits - tree.root_info().visits) > 0:
        result = tree.collect(batch, min(batch_size, missing), missing)
        tree.apply_random(batch)
        if result.evaluations == 0 and result.visits_done == 0:
            return


def children_by_move(tree: Tree) -> dict[str, ChildInfo]:
    return {child.move: child for child in tree.children()}


def proof_of(found: RootInfo | ChildInfo) -> Proof:
    """The proof that the root or a root move is known to have."""
    assert found.proof is not None
    return found.proof
