"""The tree against a plain PUCT search written from the formulas, one visit at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest

from engine._core import Batch, Game, evaluate_randomly
from tests.engine.core.tree.search_helpers import children_by_move, game, new_tree, search

CPUCT, BASE, FACTOR, FPU_REDUCTION, TEMPERATURE = 1.745, 38739.0, 3.894, 0.33, 1.359


@dataclass
class PlainNode:
    """A position: its moves with their priors, and the value sum from its own side's view."""

    priors: dict[str, float]
    value: float
    visits: int = 1
    value_sum: float = 0.0
    children: dict[str, PlainNode] = field(default_factory=dict)

    def q(self) -> float:
        return self.value_sum / self.visits


def evaluate(position: Game) -> PlainNode:
    """The random evaluation of a position, through a tree that sees nothing else."""
    tree = new_tree(position, cache_bytes=0)
    batch = Batch(1)
    tree.collect(batch, 1)
    logits, wdl, _ = evaluate_randomly(batch)
    tree.apply_random(batch)
    value = float(wdl[0, 0] - wdl[0, 2])
    moves = {child.move: child.prior for child in tree.children()}
    exps = sorted((math.exp(float(logit) / TEMPERATURE) for logit in logits), reverse=True)
    ordered = sorted(moves.values(), reverse=True)
    assert ordered == pytest.approx([x / sum(exps) for x in exps], rel=5e-4)
    return PlainNode(priors=moves, value=value, value_sum=value)


def visit(node: PlainNode, position: Game) -> float:
    """One visit below an evaluated node; returns the value for its side to move."""
    visited_policy = sum(node.priors[move] for move in node.children)
    urgency = node.q() - FPU_REDUCTION * math.sqrt(visited_policy)
    cpuct = CPUCT + FACTOR * math.log((node.visits + BASE) / BASE)
    scale = cpuct * math.sqrt(max(node.visits - 1, 1))

    def score(move: str) -> float:
        child = node.children.get(move)
        q = urgency if child is None else -child.q()
        return q + node.priors[move] * scale / (1 + (0 if child is None else child.visits))

    best = max(node.priors, key=score)
    position.push_uci(best)
    if best in node.children and node.children[best].priors:
        value = -visit(node.children[best], position)
    elif best in node.children:  # the game is over there
        child = node.children[best]
        child.visits += 1
        child.value_sum += child.value
        value = -child.value
    else:
        outcome, _ = position.result()
        if outcome == "undecided":
            child = evaluate(position)
        else:
            lost = -1.0 if outcome.endswith("won") else 0.0
            child = PlainNode(priors={}, value=lost, value_sum=lost)
        node.children[best] = child
        value = -child.value
    position.pop()
    node.visits += 1
    node.value_sum += value
    return value


@pytest.mark.parametrize(
    "fen",
    [
        "r1bqk2r/pppp1ppp/2n2n2/2b1p3/2B1P3/2N2N2/PPPP1PPP/R1BQK2R w KQkq - 6 5",
        "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 b - - 0 1",
        "4k3/P7/8/8/8/8/7p/4K3 w - - 0 1",
    ],
)
def test_the_tree_visits_what_plain_puct_visits(fen: str) -> None:
    visits = 600
    start = game(fen)
    root = evaluate(start)
    for _ in range(visits - 1):
        visit(root, start)

    tree = new_tree(
        game(fen),
        two_fold_draws=False,
        sticky_endgames=False,
        moves_left_max_effect=0.0,
        cache_bytes=0,
    )
    search(tree, visits, batch_size=1)
    found = {move: child.visits for move, child in children_by_move(tree).items()}
    expected = {move: root.children[move].visits if move in root.children else 0 for move in root.priors}
    # Rounding can turn a close choice now and then.
    assert sum(abs(found[move] - expected[move]) for move in expected) <= visits // 50
    assert tree.root_info().evaluation.q == pytest.approx(root.q(), abs=5e-3)
