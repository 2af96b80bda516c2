# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports of a search as plain data: lines, counts, the best move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.search.scores import BOUNDED_SCORES, SCORES

if TYPE_CHECKING:
    from engine._core import ChildInfo, RootInfo
    from engine._core import Line as TreeLine


TABLEBASE_CENTIPAWNS = 20_000
"""Score of a tablebase win, less the plies to it: above every other score, and not a mate."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of play, from the point of view of the side to move at its start.

    moves: UCI notation. visits: of the first move. move_visits: of each move; empty without a search. q:
    expected result, -1 to 1. wdl: probabilities of win, draw and loss. moves_left: expected plies to the end
    of the game. prior: network's probability of the first move. mate: moves to a proven mate, negative for
    being mated, or None. tablebase: 1, 0 or -1 if tablebases know the result, which then sets q and wdl.
    tablebase_plies: plies to the next capture or pawn move if they know the position, else to the position
    that they know. doubt: deduction from q in the choice of the move, some standard deviations of its mean;
    None without a search or if the move is not chosen by value.
    """

    moves: tuple[str, ...]
    visits: int
    q: float
    wdl: tuple[float, float, float]
    moves_left: float
    prior: float
    mate: int | None = None
    tablebase: int | None = None
    tablebase_plies: int = 0
    move_visits: tuple[int, ...] = ()
    doubt: float | None = None

    @classmethod
    def of(cls, line: TreeLine) -> Line:
        """Return a line of the tree as plain data."""
        proof, known = line.proof, line.by_tables
        if proof is not None and (proof.by_tables or not proof.value):
            proof = None
        q, wdl = line.evaluation.q, line.evaluation.wdl
        if known is not None:
            q = float(known.value)
            wdl = (float(known.value > 0), float(known.value == 0), float(known.value < 0))
        return cls(
            moves=tuple(line.moves),
            visits=line.visits,
            q=q,
            wdl=wdl,
            moves_left=line.evaluation.m,
            prior=line.prior,
            mate=proof.value * ((proof.plies + 1) // 2) if proof is not None else None,
            tablebase=known.value if known is not None else None,
            tablebase_plies=known.plies if known is not None else 0,
            move_visits=tuple(line.move_visits),
            doubt=line.doubt if known is None or line.doubt is None else 0.0,
        )

    def centipawns(self) -> int:
        """Return q as the ScoreType `centipawn`."""
        return self.score("centipawn")

    def score(self, kind: str, draw_score: float = 0.0) -> int:
        """Return the score in a unit of the option ScoreType.

        draw_score: value of a draw for the side to move, -1 to 1. In centipawn units, a tablebase win or loss
        is TABLEBASE_CENTIPAWNS less the plies to it.
        """
        if self.tablebase and kind not in BOUNDED_SCORES:
            return self.tablebase * (TABLEBASE_CENTIPAWNS - self.tablebase_plies)
        d = self.wdl[1]
        return round(SCORES[kind](self.q, d, self.q + draw_score * d))


@dataclass(frozen=True, slots=True)
class MoveStatistics:
    """Statistics of one root move, or of the root itself (move `node`), for the side to move at the root.

    index: policy index of the move; of the root, its number of moves. prior: of the root, the sum over its
    visited moves. wl, d, m: win minus loss, draw and plies to the end; wl is None without visits. q: wl
    including the value of a draw; without visits the first-play urgency. u, s: PUCT's exploration and score;
    None for the root. v: the network's own value, or the result of a finished game; None if unknown. bounds:
    worst and best possible result. deviation: standard deviation of the visits' values; 0 if not recorded.
    """

    move: str
    index: int
    visits: int
    in_flight: int
    prior: float
    wl: float | None
    d: float
    m: float
    q: float
    u: float | None
    s: float | None
    v: float | None
    bounds: tuple[int, int]
    deviation: float = 0.0

    @classmethod
    def of(cls, child: ChildInfo, index: int) -> MoveStatistics:
        """Return the statistics of a root move."""
        evaluation = child.evaluation
        return cls(
            move=child.move,
            index=index,
            visits=child.visits,
            in_flight=child.in_flight,
            prior=child.prior,
            wl=evaluation.q if child.visits else None,
            d=evaluation.d,
            m=evaluation.m,
            q=child.value,
            u=child.exploration,
            s=child.score,
            v=child.own_q,
            bounds=child.bounds,
            deviation=child.deviation,
        )

    @classmethod
    def of_root(cls, root: RootInfo, children: Sequence[ChildInfo], draw_score: float) -> MoveStatistics:
        """Return the statistics of the root. draw_score: value of a draw for the side to move."""
        evaluation, own = root.evaluation, root.own_evaluation
        return cls(
            move="node",
            index=len(children),
            visits=root.visits,
            in_flight=sum(child.in_flight for child in children),
            prior=sum(child.prior for child in children if child.visits),
            wl=evaluation.q,
            d=evaluation.d,
            m=evaluation.m,
            q=evaluation.q + draw_score * evaluation.d,
            u=None,
            s=None,
            v=None if own is None else own.q,
            bounds=(-1, 1) if root.proof is None else (root.proof.value, root.proof.value),
        )


@dataclass(frozen=True, slots=True)
class Report:
    """The state of a running search, or the result of a finished one.

    best_move, ponder: UCI notation, or None. lines: best first. nodes: visits of the root, including those
    kept from earlier searches; playouts: those of this search. depth: mean depth of the playouts' leaves,
    rounded down; selective_depth: the deepest; the root has depth 1. hashfull: tree memory in use, in
    thousandths. evaluations: positions sent to the network; mean_batch: positions per batch. first_batch_ms:
    from the start to the first one. full: the tree's memory was used up, and it was pruned.
    draw_score: value of a draw for the side to move. statistics, root_statistics: of every root move and of
    the root, if the options request them. ended_early: the reason if the search ended early for lack of an
    evaluator, else empty. network: identity of the network (NetworkInfo.identity).
    """

    best_move: str | None
    ponder: str | None
    lines: tuple[Line, ...] = ()
    nodes: int = 0
    playouts: int = 0
    depth: int = 0
    selective_depth: int = 0
    seconds: float = 0.0
    hashfull: int = 0
    cache_hits: int = 0
    evaluations: int = 0
    batches: int = 0
    first_batch_ms: float = 0.0
    tablebase_hits: int = 0
    full: bool = False
    draw_score: float = 0.0
    statistics: tuple[MoveStatistics, ...] = ()
    root_statistics: MoveStatistics | None = None
    ended_early: str = ""
    network: str = ""

    @classmethod
    def unsearched(cls, lines: tuple[Line, ...]) -> Report:
        """Return the report of a search without visits. lines: known without a search, at least one."""
        best = lines[0].moves
        return cls(best[0], best[1] if len(best) > 1 else None, lines)

    @property
    def nodes_per_second(self) -> int:
        return round(self.playouts / self.seconds) if self.seconds > 0 else 0

    @property
    def evaluations_per_second(self) -> int:
        return round(self.evaluations / self.seconds) if self.seconds > 0 else 0

    @property
    def mean_batch(self) -> float:
        return self.evaluations / self.batches if self.batches else 0.0
