"""What moves are worth beside others in the same positions: arithmetic on what was searched and judged."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, median, stdev

SCALE_CP = 150.0
"""Centipawns that multiply the odds of winning by e. Our own choice, not fitted to games: the size of losses
depends on it, which of two players loses more hardly does."""

DECIDED_CP = 350
"""Positions that the judge values beyond it, for either side, are left out: nothing much is lost there."""

Place = tuple[int, int]
"""A game's number and the ply before which is searched."""

Question = tuple[int, int, str]
"""Of the judge: a place and a move; with "" for a move the position before it."""

Judgements = Mapping[Question, int]
"""Centipawns for the mover."""


@dataclass(frozen=True, slots=True)
class Searched:
    """What an engine played in a position. nodes: as it reports them, None if it does not."""

    move: str
    nodes: int | None
    milliseconds: float


Searches = Mapping[str, Mapping[Place, Searched]]
"""By the player's name."""


def winning_probability(cp: float) -> float:
    """Of the mover, with a draw as half a win."""
    return 1 / (1 + math.exp(-cp / SCALE_CP))


def questions(searches: Searches, judgements: Judgements) -> list[Question]:
    """What the judge is to be asked next: the positions that at least two players have searched, and, once
    those are known, the moves where players differ and nothing is decided. Empty when all is known."""
    asked: list[Question] = []
    for place, moves in _moves_by_place(searches).items():
        before = judgements.get((*place, ""))
        if before is None:
            asked.append((*place, ""))
        elif abs(before) <= DECIDED_CP and len(moves) > 1:
            asked += [(*place, move) for move in sorted(moves) if (*place, move) not in judgements]
    return asked


def _moves_by_place(searches: Searches) -> dict[Place, set[str]]:
    """The moves of each position that at least two players have searched."""
    found: dict[Place, list[str]] = {}
    for searched in searches.values():
        for place, search in searched.items():
            found.setdefault(place, []).append(search.move)
    return {place: set(moves) for place, moves in sorted(found.items()) if len(moves) > 1}


@dataclass(frozen=True, slots=True)
class Quality:
    """A player's moves. positions: those that every player has searched; median_nodes, median_ms: of all its
    searches. The rest in percent of the winning probability: mean_loss to the best of the players' moves with
    its standard error; in percent of the positions: above_5, above_10, those where more than that is lost."""

    player: str
    positions: int
    median_nodes: float | None
    median_ms: float
    mean_loss: float
    standard_error: float
    above_5: float
    above_10: float


@dataclass(frozen=True, slots=True)
class Difference:
    """What `player` loses more than `other`, in percent of the winning probability, on average over the
    positions that both have searched, with its standard error; differ: positions where their moves do."""

    player: str
    other: str
    positions: int
    differ: int
    mean: float
    standard_error: float


def qualities(searches: Searches, judgements: Judgements) -> list[Quality]:
    """One for each player, in their order. Positions that are not judged yet do not count."""
    losses: dict[str, list[float]] = {name: [] for name in searches}
    for _, values in _valued(searches, list(searches), judgements):
        best = max(values)
        for name, value in zip(searches, values, strict=True):
            losses[name].append(100 * (best - value))
    return [
        Quality(
            name,
            len(losses[name]),
            _median(search.nodes for search in searched.values() if search.nodes is not None),
            _median(search.milliseconds for search in searched.values()) or 0.0,
            *_mean(losses[name]),
            _share(losses[name], 5),
            _share(losses[name], 10),
        )
        for name, searched in searches.items()
    ]


def differences(searches: Searches, judgements: Judgements) -> list[Difference]:
    """One for each pair of players. Positions that are not judged yet do not count."""
    found = []
    for pair in combinations(searches, 2):
        compared = list(_valued(searches, pair, judgements))
        lost = [100 * (second - first) for _, (first, second) in compared]
        differ = sum(searches[pair[0]][place].move != searches[pair[1]][place].move for place, _ in compared)
        found.append(Difference(*pair, len(lost), differ, *_mean(lost)))
    return found


def table(found: Sequence[Quality], pairs: Sequence[Difference]) -> str:
    """The lines of both tables."""
    width = max(len("player"), *(len(each.player) for each in found))
    lines = [
        f"{'player':{width}} {'positions':>9} {'nodes':>9} {'ms':>8} {'loss in %':>15} "
        f"{'> 5 %':>6} {'> 10 %':>6}"
    ]
    for each in found:
        nodes = "-" if each.median_nodes is None else f"{each.median_nodes:.0f}"
        loss = f"{each.mean_loss:.3f} ± {each.standard_error:.3f}"
        lines.append(
            f"{each.player:{width}} {each.positions:9} {nodes:>9} {each.median_ms:8.1f} {loss:>15} "
            f"{each.above_5:6.2f} {each.above_10:6.2f}"
        )
    lines += ["", f"{'loses more than':{2 * width + 3}} {'by %':>16} {'positions':>9} {'differ':>7}"]
    for pair in pairs:
        lines.append(
            f"{pair.player:{width}} - {pair.other:{width}} {pair.mean:+8.3f} ± {pair.standard_error:.3f} "
            f"{pair.positions:9} {pair.differ:7}"
        )
    return "\n".join(lines if pairs else lines[:-2])


def _valued(
    searches: Searches, names: Sequence[str], judgements: Judgements
) -> Iterable[tuple[Place, list[float]]]:
    """The undecided positions that all of these players have searched, with the winning probability after
    each one's move; where they all play the same, which nobody judges, 0 for all."""
    for place in sorted(set.intersection(*(set(searches[name]) for name in names)) if names else ()):
        before = judgements.get((*place, ""))
        if before is None or abs(before) > DECIDED_CP:
            continue
        moves = [searches[name][place].move for name in names]
        if len(set(moves)) == 1:
            yield place, [0.0] * len(names)
            continue
        values = [judgements.get((*place, move)) for move in moves]
        if None not in values:
            yield place, [winning_probability(value) for value in values if value is not None]


def _mean(values: Sequence[float]) -> tuple[float, float]:
    """The mean and its standard error; 0 where there are too few values for one."""
    if not values:
        return 0.0, 0.0
    return fmean(values), stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def _median(values: Iterable[float]) -> float | None:
    listed = list(values)
    return median(listed) if listed else None


def _share(values: Sequence[float], above: float) -> float:
    return 100 * sum(value > above for value in values) / len(values) if values else 0.0
