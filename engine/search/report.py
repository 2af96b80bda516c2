"""What a search says about itself, as plain data: lines, counts, the best move."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, tan
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine._core import ChildInfo
    from engine._core import Line as TreeLine


@dataclass(frozen=True, slots=True)
class Line:
    """One line of play, from the point of view of the side to move at its start.

    moves: UCI notation. visits: of the first move. q: expected result, -1 to 1. wdl: probabilities of win,
    draw and loss. moves_left: plies the game is expected to last. prior: the network's probability of the
    first move. mate: moves to a proven mate, negative when being mated, None when not proven.
    """

    moves: tuple[str, ...]
    visits: int
    q: float
    wdl: tuple[float, float, float]
    moves_left: float
    prior: float
    mate: int | None = None

    @classmethod
    def of(cls, line: TreeLine) -> Line:
        """A line as the tree gives it."""
        proof = line.proof
        return cls(
            moves=tuple(line.moves),
            visits=line.visits,
            q=line.evaluation.q,
            wdl=line.evaluation.wdl,
            moves_left=line.evaluation.m,
            prior=line.prior,
            mate=proof.value * ((proof.plies + 1) // 2) if proof is not None and proof.value else None,
        )

    def centipawns(self) -> int:
        """q on the scale that chess programs show: 90 tan(1.5637541897 q), lc0's `centipawn`."""
        return round(90 * tan(1.5637541897 * max(-1.0, min(1.0, self.q))))

    def score(self, kind: str) -> int:
        """The score in the unit of the option ScoreType."""
        if kind == "win_percentage":
            return round(50 * (self.q + 1) * 100)
        if kind == "Q":
            return round(self.q * 10000)
        if kind == "W-L":
            return round((self.wdl[0] - self.wdl[2]) * 100)
        if kind == "WDL_mu":
            return self._wdl_mu()
        return self.centipawns()

    def _wdl_mu(self) -> int:
        """100 μ, where win and loss are the tails of a logistic distribution with centre μ beyond ±1.

        lc0's WDL_mu: falls back to 45 tan(1.56728071628 q) where the tails are too thin or too thick to tell.
        """
        win, draw, loss = self.wdl
        fallback = 45 * tan(1.56728071628 * max(-1.0, min(1.0, win - loss)))
        if win <= 0 or loss <= 0 or draw <= 0 or abs(win - loss) + draw >= 0.996:
            return round(fallback)
        a, b = log(1 / loss - 1), log(1 / win - 1)
        if a + b <= 0:
            return round(fallback)
        mu = 100 * (a - b) / (a + b)
        return round(fallback if abs(mu) >= 100 and abs(fallback) > abs(mu) else mu)


@dataclass(frozen=True, slots=True)
class MoveStatistics:
    """One move of the root: what the search knows about it."""

    move: str
    visits: int
    in_flight: int
    prior: float
    q: float
    d: float
    m: float
    u: float

    @classmethod
    def of(cls, child: ChildInfo) -> MoveStatistics:
        """A root move as the tree gives it."""
        return cls(
            move=child.move,
            visits=child.visits,
            in_flight=child.in_flight,
            prior=child.prior,
            q=child.evaluation.q,
            d=child.evaluation.d,
            m=child.evaluation.m,
            u=child.exploration,
        )


@dataclass(frozen=True, slots=True)
class Report:
    """A search as it stands, or as it ended.

    best_move and ponder: UCI notation, None when there is none. lines: best first. nodes: visits of the
    root, those kept from earlier searches included; playouts: those made by this search. depth: mean depth of
    the leaves in plies; selective_depth: the deepest. hashfull: how full the tree is, in thousandths.
    evaluations: positions the network was asked about; mean_batch: positions per batch sent. full: the tree
    has no room left.
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
    tablebase_hits: int = 0
    full: bool = False
    statistics: tuple[MoveStatistics, ...] = ()

    @property
    def nodes_per_second(self) -> int:
        return round(self.playouts / self.seconds) if self.seconds > 0 else 0

    @property
    def mean_batch(self) -> float:
        return self.evaluations / self.batches if self.batches else 0.0
