"""A plain PUCT search written from the formulas, one visit at a time, to hold the core's tree against."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from engine._core import Batch, Game, evaluate_randomly
from tests.engine.core.tree.search_helpers import children_by_move, game, new_tree, search

BASE, FACTOR, FPU_REDUCTION, TEMPERATURE = 38739.0, 3.894, 0.33, 1.359
LENIENCY = 2.0


@dataclass(frozen=True)
class Rules:
    """What the search does beyond PUCT; the names are those of the core's SearchParams."""

    cpuct: float = 1.745
    cpuct_deviation_scale: float = 0.0
    deviation_prior: float = 0.2
    deviation_prior_visits: float = 4.0
    noise_pruning_scale: float = 0.0
    known_draws: str = "off"
    two_fold_draws: bool = False
    sticky_endgames: bool = False
    transposition_visits: int = 0


@dataclass
class PlainNode:
    """A position. Values are from its own side's view; bounds: the least and the best result proven."""

    priors: dict[str, float]
    value: float
    q: float = 0.0
    visits: int = 1
    bounds: tuple[int, int] = (-1, 1)
    repeats: bool = False
    seen: list[float] = field(default_factory=list)
    children: dict[str, PlainNode] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.q = self.value
        self.seen.append(self.value)

    @property
    def proven(self) -> bool:
        return self.bounds[0] == self.bounds[1]

    def variance(self) -> float:
        mean = sum(self.seen) / len(self.seen)
        return sum((value - mean) ** 2 for value in self.seen) / len(self.seen)


class PlainSearch:
    """A search from a position, with random evaluations."""

    def __init__(self, position: Game, rules: Rules) -> None:
        self._rules = rules
        self._position = position
        # By position: the network's evaluation, and a power of two of visits with their value.
        self._cached: dict[tuple[int, int], PlainNode] = {}
        self._searched: dict[tuple[int, int], tuple[int, float]] = {}
        self.root = self._evaluated()

    def run(self, visits: int) -> None:
        """Search until the root has so many visits."""
        while self.root.visits < visits:
            self._visit(self.root, 0)

    def _evaluated(self) -> PlainNode:
        """The random evaluation of the position, through a tree that sees nothing else."""
        tree = new_tree(self._position, cache_bytes=0)
        batch = Batch(1)
        tree.collect(batch, 1)
        logits, wdl, _ = evaluate_randomly(batch)
        tree.apply_random(batch)
        moves = {child.move: child.prior for child in tree.children()}
        exps = sorted((math.exp(float(logit) / TEMPERATURE) for logit in logits), reverse=True)
        ordered = sorted(moves.values(), reverse=True)
        assert all(math.isclose(a, x / sum(exps), rel_tol=5e-4) for a, x in zip(ordered, exps, strict=True))
        node = PlainNode(priors=moves, value=float(wdl[0, 0] - wdl[0, 2]))
        self._cached[self._key] = node
        return node

    @property
    def _key(self) -> tuple[int, int]:
        return self._position.key, self._position.repetitions

    def _leaf(self, depth: int) -> PlainNode:
        position, rules = self._position, self._rules
        outcome, _ = position.result()
        if outcome != "undecided":
            lost = -1 if outcome.endswith("won") else 0
            return PlainNode(priors={}, value=lost, bounds=(lost, lost))
        if rules.two_fold_draws and position.repetitions == 1 and position.plies_since_repetition <= depth:
            return PlainNode(priors={}, value=0.0, repeats=True)
        if not rules.transposition_visits:
            return self._evaluated()
        if self._key not in self._cached:
            return self._evaluated()
        cached = self._cached[self._key]
        visits, value = self._searched.get(self._key, (0, 0.0))
        enough = visits >= rules.transposition_visits
        return PlainNode(priors=cached.priors, value=value if enough else cached.value)

    def _exploration(self, node: PlainNode) -> float:
        rules = self._rules
        factor = rules.cpuct + FACTOR * math.log((node.visits + BASE) / BASE)
        if rules.cpuct_deviation_scale:
            weight = rules.deviation_prior_visits
            variance = weight * rules.deviation_prior**2 + node.visits * node.variance()
            deviation = math.sqrt(variance / (weight + node.visits))
            factor *= 1 + rules.cpuct_deviation_scale * (deviation / rules.deviation_prior - 1)
        return factor * math.sqrt(max(node.visits - 1, 1))

    def _best(self, node: PlainNode) -> str:
        visited_policy = sum(node.priors[move] for move in node.children)
        urgency = node.q - FPU_REDUCTION * math.sqrt(visited_policy)
        scale = self._exploration(node)

        def score(move: str) -> float:
            child = node.children.get(move)
            q = urgency if child is None else -child.q
            return q + node.priors[move] * scale / (1 + (0 if child is None else child.visits))

        return max(node.priors, key=score)

    def _visit(self, node: PlainNode, depth: int) -> float:
        """One visit below an evaluated node; what it brought, for the node's side to move."""
        self._note(node)
        best = self._best(node)
        self._position.push_uci(best)
        child = node.children.get(best)
        if child is None:
            child = node.children[best] = self._leaf(depth + 1)
            value = child.value
        elif child.proven or not child.priors:
            value = child.q
            child.visits += 1
            child.seen.append(value)
        else:
            value = self._visit(child, depth + 1)
        self._position.pop()
        node.visits += 1
        node.seen.append(-value)
        self._refresh(node)
        return -value

    def _note(self, node: PlainNode) -> None:
        """Keeps the value of a position that gets a visit which makes them a power of two."""
        begun = node.visits + 1
        if node.visits < 2 or begun & node.visits:
            return
        power = 1 << (node.visits.bit_length() - 1)
        if power >= self._searched.get(self._key, (0, 0.0))[0]:
            self._searched[self._key] = (power, node.q)

    def _refresh(self, node: PlainNode) -> None:
        """The node's bounds and value from its children's."""
        rules = self._rules
        children = [(node.priors[move], child) for move, child in node.children.items()]
        if rules.sticky_endgames:
            unvisited = [(-1, 1)] if len(children) < len(node.priors) else []
            bounds = [(-child.bounds[1], -child.bounds[0]) for _, child in children] + unvisited
            node.bounds = max(low for low, _ in bounds), max(high for _, high in bounds)
        if node.proven:
            node.q = node.bounds[0]
            return
        node.q = (node.value + sum(w * q for w, q in self._weighted(children))) / (
            1 + sum(w for w, _ in self._weighted(children))
        )
        low, high = node.bounds
        if rules.known_draws == "repetition" and any(child.repeats for _, child in children):
            low = max(low, 0)
        if rules.known_draws != "off":
            node.q = min(max(node.q, low), high)

    def _weighted(self, children: list[tuple[float, PlainNode]]) -> list[tuple[float, float]]:
        """Weights and values, for the side to move, of moves in the order of their priors."""
        scale = self._rules.noise_pruning_scale
        weighted: list[tuple[float, float]] = []
        policy = 0.0
        for prior, child in sorted(children, key=lambda pair: -pair[0]):
            weight, q = float(child.visits), -child.q
            if scale and weighted:
                before = sum(w for w, _ in weighted)
                gap = sum(w * value for w, value in weighted) / before - q
                fair = LENIENCY * before * prior / policy
                if gap > 0 and weight > fair:
                    weight = fair + (weight - fair) * math.exp(-gap / scale)
            weighted.append((weight, q))
            policy += prior
        return weighted


def assert_the_same_search(fen: str, visits: int, rules: Rules) -> PlainSearch:
    """The core's tree visits the root's moves as the plain search does, and finds the same value."""
    plain = PlainSearch(game(fen), rules)
    plain.run(visits)
    tree = new_tree(
        game(fen),
        moves_left_max_effect=0.0,
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
