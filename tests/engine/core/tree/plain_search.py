# SPDX-License-Identifier: GPL-3.0-or-later
"""A plain PUCT search written from the formulas, one visit at a time, to hold the core's tree against."""

import math
from collections.abc import Hashable
from dataclasses import dataclass

import chess

from engine._core import Batch, Game, evaluate_randomly
from tests.engine.core.tree.plain_node import PlainNode, Rules, Value, exact
from tests.engine.core.tree.search_helpers import children_by_move, game, new_tree, search

BASE, FACTOR, FPU_REDUCTION, TEMPERATURE = 38739.0, 3.894, 0.33, 1.359
MOVES_LEFT_THRESHOLD, MOVES_LEFT_SLOPE = 0.8, 0.0027
MOVES_LEFT_SCALED, MOVES_LEFT_QUADRATIC = 1.6521, -0.6521

CLOCK_STEP, FIRST_CLOCK_STEP = 8, 32
"""The cache tells positions apart by the plies since a capture or pawn move, in steps, from some on."""

CACHED_STEPS = 1023
"""Of a searched value, from a loss to a win, and of its draws."""

WEIGHT_STEPS, PRIOR_WEIGHT, EXPONENT = 16, 48, 0.85
"""Of the weight of an error after one visit; weight that an entry has more; power of the visits."""

RECORD_UNIT, DELTA_UNIT = 8191, 4095
"""Of q and of errors in a node's record."""


@dataclass(frozen=True)
class Searched:
    """What a position was worth when it had so many visits, a power of two or more; in Value's words."""

    visits: int
    q: float
    d: float


class PlainSearch:
    """A search from a position, with random evaluations, that goes on as the game does."""

    def __init__(self, position: Game, rules: Rules) -> None:
        self._rules = rules
        self._position = position.copy()
        # By position: priors and the network's value, and what a search has made of it.
        self._cached: dict[tuple[int, int, int], tuple[dict[str, float], Value]] = {}
        self._searched: dict[tuple[int, int, int], Searched] = {}
        self._path: list[PlainNode] = []
        # By last move: the sum of the network's errors times their weights, and that of the weights.
        self._errors: dict[Hashable, list[float]] = {}
        self.root = self._corrected(self._evaluated())

    def run(self, visits: int) -> None:
        """Search until the root has so many visits."""
        while self.root.visits < visits:
            self._visit(self.root)

    def play(self, move: str) -> None:
        """Make a visited move, and keep what was searched of it."""
        self._position.push_uci(move)
        self.root = self.root.children[move]
        if not self.root.priors:
            self.root = self._evaluated()

    def ranked(self) -> list[str]:
        """The root's moves, the one to be played first (docs/reference/uci.md, `multipv`)."""
        rules, children = self._rules, self.root.children
        undecided = [
            child.visits for child in children.values() if child.bounds[0] < 1 and child.bounds[1] > -1
        ]
        enough = rules.value_choice_share * max(undecided, default=0)

        def rank(move: str) -> tuple[float, ...]:
            child = children.get(move)
            if child is None:
                return 0, 0, 0, -1
            if child.bounds[1] == -1:
                return 1, -child.m, child.visits
            if child.bounds[0] == 1:
                return -1, child.m, child.visits
            if child.visits < enough:
                return 0, 0, 0, child.visits, -child.q
            return 0, 0, 1, self.bound(child)

        return sorted(self.root.priors, key=rank, reverse=True)

    def bound(self, child: PlainNode) -> float:
        """Q of a move less z sigma / sqrt(N)."""
        z = self._rules.value_choice_deviations
        return -child.q - (z * child.deviation_with_prior() / math.sqrt(child.visits) if z else 0)

    def _evaluated(self) -> PlainNode:
        """The random evaluation of the position, through a tree that sees nothing else."""
        tree = new_tree(self._position, cache_bytes=0)
        batch = Batch(1)
        tree.collect(batch, 1)
        logits, wdl, moves_left = evaluate_randomly(batch)
        tree.apply_random(batch)
        moves = {child.move: child.prior for child in tree.children()}
        exps = sorted((math.exp(float(logit) / TEMPERATURE) for logit in logits), reverse=True)
        ordered = sorted(moves.values(), reverse=True)
        assert all(math.isclose(a, x / sum(exps), rel_tol=5e-4) for a, x in zip(ordered, exps, strict=True))
        value = Value(float(wdl[0, 0] - wdl[0, 2]), float(wdl[0, 1]), float(moves_left[0]))
        self._cached[self._key] = moves, value
        return PlainNode(moves, value)

    @property
    def _key(self) -> tuple[int, int, int]:
        clock = self._position.rule50
        step = clock // CLOCK_STEP if clock >= FIRST_CLOCK_STEP else 0
        return self._position.key, self._position.repetitions, step

    @property
    def _cycle(self) -> int:
        """Plies since the position occurred before, if it was in the searched line; 0 if not."""
        plies = self._position.plies_since_repetition
        return plies if self._position.repetitions == 1 and plies <= len(self._path) else 0

    def _leaf(self) -> PlainNode:
        position, rules = self._position, self._rules
        outcome, _ = position.result()
        if outcome != "undecided":
            result = -1 if outcome.endswith("won") else 0
            return PlainNode({}, exact(result), bounds=(result, result))
        if rules.two_fold_draws and self._cycle:
            return PlainNode({}, exact(0), cycle=self._cycle)
        if not rules.transposition_visits or self._key not in self._cached:
            return self._corrected(self._evaluated())
        priors, value = self._cached[self._key]
        searched = self._searched.get(self._key)
        if searched is not None and searched.visits >= rules.transposition_visits:
            node = PlainNode(priors, Value(searched.q, searched.d, value.m), raw=value.q)
            node.pattern = last_move(self._position)
            return node
        return self._corrected(PlainNode(priors, value))

    def _corrected(self, node: PlainNode) -> PlainNode:
        """A new position, with the network's value less the mean error of others after the same move."""
        node.raw, share = node.first.q, self._rules.subtree_value_bias
        if share:
            node.pattern = last_move(self._position)
            total, weight = self._errors.get(node.pattern, (0.0, 0.0))
            most, q = 1 - node.first.d, node.raw + share * total / (weight + PRIOR_WEIGHT)
            node.first = Value(min(max(q, -most), most), node.first.d, node.first.m)
            node.sum = node.first.q
        return node

    def _note_error(self, node: PlainNode, visits_before: int) -> None:
        """Tells the pattern what the network's error is, when a node's visits begin a new step."""
        if not node.pattern or (step(node.visits - 1) == step(visits_before - 1) and not node.proven):
            return
        visits, error = node.visits - 1, (0.0, 0.0)
        if visits > 0 and not node.proven:
            weight = round(WEIGHT_STEPS * 2 ** ((step(visits) - 1) / 2 * EXPONENT))
            first, raw = (round(q * RECORD_UNIT) / RECORD_UNIT for q in (node.first.q, node.raw))
            error = round(((node.sum - first) / visits - raw) * DELTA_UNIT) / DELTA_UNIT, weight
        sums = self._errors.setdefault(node.pattern, [0.0, 0.0])
        sums[0] += error[0] * error[1] - node.error[0] * node.error[1]
        sums[1] += error[1] - node.error[1]
        node.error = error

    def _exploration(self, node: PlainNode) -> float:
        rules = self._rules
        factor = rules.cpuct + FACTOR * math.log((node.visits + BASE) / BASE)
        return factor * math.sqrt(max(node.visits - 1, 1))

    def _moves_left_utility(self, node: PlainNode, child: PlainNode) -> float:
        """What a short win or a long loss is preferred by, where the position is decided."""
        most = self._rules.moves_left_max_effect
        if abs(node.q) <= MOVES_LEFT_THRESHOLD:
            return 0.0
        effect = min(max(MOVES_LEFT_SLOPE * (child.m - node.m), -most), most)
        size = max(0.0, abs(child.q) - MOVES_LEFT_THRESHOLD) / (1 - MOVES_LEFT_THRESHOLD)
        return (effect if child.q >= 0 else -effect) * (
            MOVES_LEFT_SCALED * size + MOVES_LEFT_QUADRATIC * size**2
        )

    def _best(self, node: PlainNode) -> str:
        lost = {move for move, child in node.children.items() if child.bounds[0] == 1}
        visited_policy = sum(node.priors[move] for move in node.children if move not in lost)
        urgency = node.q - FPU_REDUCTION * math.sqrt(visited_policy)
        scale = self._exploration(node)

        def score(move: str) -> float:
            child = node.children.get(move)
            if child is None:
                return urgency + node.priors[move] * scale
            value = -child.q + self._moves_left_utility(node, child)
            return value + (0 if move in lost else node.priors[move] * scale / (1 + child.visits))

        return max(node.priors, key=score)

    def _visit(self, node: PlainNode) -> bool:
        """One visit below a position that has moves; whether those above it have to look at it again."""
        self._note(node)
        visits_before = node.visits
        best = self._best(node)
        self._position.push_uci(best)
        self._path.append(node)
        child = node.children.get(best)
        if child is not None and child.cycle > len(self._path):
            self._take_back(best)
            child = None
        news = False
        if child is None:
            node.children[best] = self._leaf()
        elif child.decided:
            child.visit_again()
        else:
            news = self._visit(child)
        self._path.pop()
        self._position.pop()
        news = node.refresh(self._rules, news)
        self._note_error(node, visits_before)
        return news

    def _take_back(self, move: str) -> None:
        """The last position's move is no draw by repetition any more, as the first occurrence has become part
        of the game: its visits leave the tree."""
        del self._path[-1].children[move]
        for node in reversed(self._path):
            visits_before = node.visits
            node.refresh(self._rules, news_below=True)
            self._note_error(node, visits_before)

    def _note(self, node: PlainNode) -> None:
        """Keeps the value of a position that gets a visit which makes them a power of two."""
        begun = node.visits + 1
        if node.visits < 2 or begun & node.visits:
            return
        power = 1 << (node.visits.bit_length() - 1)
        known = self._searched.get(self._key)
        if known is None or power >= known.visits:
            self._searched[self._key] = Searched(power, 2 * _rounded((node.q + 1) / 2) - 1, _rounded(node.d))


def step(visits: int) -> int:
    """Steps of visits by factors of the square root of 2."""
    return (visits * visits).bit_length()


def last_move(position: Game) -> Hashable:
    """The side to move; the squares that the last move left and reached, the piece, and what it took."""
    line, side = position.copy(), position.turn
    if not line.moves():
        return (side,)
    after = chess.BaseBoard(line.fen().split()[0])
    line.pop()
    before = chess.BaseBoard(line.fen().split()[0])
    mover = chess.WHITE if side == "black" else chess.BLACK
    was, now = (set(chess.SquareSet(board.occupied_co[mover])) for board in (before, after))
    reached = min(now - was)
    return side, frozenset(was - now), frozenset(now - was), after.piece_at(reached), before.piece_at(reached)


def _rounded(share: float) -> float:
    """As the cache keeps a number from 0 to 1."""
    return round(share * CACHED_STEPS) / CACHED_STEPS


def assert_the_same_search(fen: str, visits: int, rules: Rules) -> PlainSearch:
    """The core's tree visits the root's moves as the plain search does, and finds the same value."""
    plain = PlainSearch(game(fen), rules)
    plain.run(visits)
    tree = new_tree(
        game(fen),
        cpuct_at_root=rules.cpuct,
        cache_bytes=(8 << 20) if rules.transposition_visits else 0,
        **{name: getattr(rules, name) for name in Rules.__dataclass_fields__},
    )
    search(tree, visits, batch_size=1)
    found = {move: child.visits for move, child in children_by_move(tree).items()}
    children = plain.root.children
    expected = {move: children[move].visits if move in children else 0 for move in plain.root.priors}
    # Rounding can turn a close choice now and then.
    assert sum(abs(found[move] - expected[move]) for move in expected) <= visits // 50
    assert abs(tree.root_info().evaluation.q - plain.root.q) < 5e-3
    return plain
