# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON objects of all answers.

Results (q, wdl, score, mate and the like) are for the side to move, or for the side in `point_of_view`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

from engine.apps.analysis.errors import QueryError
from engine.search.notation import san_of
from engine.search.report import Line, MoveStatistics, Report

if TYPE_CHECKING:
    from engine._core import ChildInfo, Game, RootInfo, Tree
    from engine.apps.analysis.query import Query

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode

DIGITS = 5
"""Decimal places of values and probabilities."""


@dataclass(frozen=True, slots=True)
class TreeData:
    """Data of a tree for an answer, besides the search's report. children: empty if not requested."""

    root: RootInfo
    children: Sequence[ChildInfo]

    @classmethod
    def of(cls, tree: Tree, query: Query) -> TreeData:
        """Return the tree's current data. Only the searching thread may call it."""
        return cls(tree.root_info(), tree.children() if query.fields.include_policy else ())


def encoded(answer: dict[str, Any]) -> bytes:
    """Return an answer encoded for sending: ASCII JSON without line breaks."""
    return _encode(answer).encode()


def error(problem: QueryError, identity: str | None = None, turn: int | None = None) -> dict[str, Any]:
    """Return the answer to a refused query, or with a turn to one position of it."""
    return _about(problem, "error", identity, turn)


def warning(problem: QueryError, identity: str) -> dict[str, Any]:
    """Return a warning about an accepted query."""
    return _about(problem, "warning", identity, None)


def no_results(identity: str, turn: int) -> dict[str, Any]:
    """Return the answer for a position that was terminated before it had results."""
    return {"id": identity, "turn": turn, "during_search": False, "no_results": True}


def game_over(query: Query, turn: int, game: Game) -> dict[str, Any]:
    """Return the answer for a position without legal moves."""
    return {**_head(query, turn, game, during_search=False), "moves": []}


def analysis(
    query: Query,
    turn: int,
    game: Game,
    report: Report,
    seen: TreeData,
    *,
    during_search: bool = False,
    terminated: bool = False,
) -> dict[str, Any]:
    """Return the answer for a searched position. terminated: a client ended the search before its limits."""
    fields, view = query.fields, _SideView(query, game)
    answer = _head(query, turn, game, during_search=during_search)
    if terminated:
        answer["terminated"] = True
    if report.ended_early:
        answer["ended_early"] = report.ended_early
    answer["root"] = view.root(seen.root, report)
    answer["search"] = _search(report)
    lines = (line for line in report.lines if line.visits or line.prior)
    answer["moves"] = [view.line(order, line, report) for order, line in enumerate(lines)]
    if fields.include_policy:
        answer["policy"] = _policy(seen.children)
    if fields.include_statistics:
        answer["statistics"] = [view.statistics(move) for move in report.statistics]
    return answer


def evaluation(query: Query, turn: int, game: Game, output: dict[str, Any]) -> dict[str, Any]:
    """Return the answer for a position without a search. output: of the network, for the side to move."""
    if query.fields.point_of_view not in ("side_to_move", game.turn):
        output |= {"q": 0.0 - output["q"], "wdl": output["wdl"][::-1]}
    return {**_head(query, turn, game, during_search=False), **output}


class _SideView:
    """Results from the point of view of one side."""

    def __init__(self, query: Query, game: Game) -> None:
        self._query = query
        self._sign = 1 if query.fields.point_of_view in ("side_to_move", game.turn) else -1
        self._turn = game.turn
        self._fen, self._chess960 = game.fen(), game.chess960
        self._contempt = query.contempt(game.turn)
        options = query.options
        self._keeps_deviations = options.value_choice_deviations > 0

    def root(self, root: RootInfo, report: Report) -> dict[str, Any]:
        """Return the result of the position itself. A mate may be in the report only, not in the tree."""
        found, best = root.evaluation, report.lines[0] if report.lines else None
        mates = best is not None and best.mate is not None and best.mate > 0
        result = (
            Line((), root.visits, found.q, found.wdl, found.m, 1.0) if best is None or not mates else best
        )
        shown = self._contempt.shown(result, self._turn)
        answer: dict[str, Any] = {"visits": root.visits, **self._result(shown.q, shown.wdl)}
        answer["moves_left"] = _rounded(result.moves_left)
        proof = root.proof
        if mates:
            answer["proven"] = self._sign
        elif proof is not None and not proof.by_tables:
            answer["proven"] = self._sign * proof.value
        own = root.own_evaluation
        if own is not None:
            known = isfinite(own.d)
            answer["network"] = {
                "q": self._value(own.q),
                "wdl": self._wdl(own.wdl) if known else None,
                "moves_left": _rounded(own.m) if known else None,
            }
        return answer

    def line(self, order: int, line: Line, report: Report) -> dict[str, Any]:
        """Return one of the best moves with its principal variation."""
        fields = self._query.fields
        length = fields.pv_length or len(line.moves)
        answer: dict[str, Any] = {
            "move": line.moves[0],
            "order": order,
            "visits": line.visits,
            **self._result(line.q, line.wdl),
            **({} if line.doubt is None else {"lcb": self._value(line.q - line.doubt)}),
            "score": self._sign * line.score(self._query.options.score_type, report.draw_score),
            "moves_left": _rounded(line.moves_left),
            "prior": _rounded(line.prior),
        }
        if line.mate is not None:
            answer["mate"] = self._sign * line.mate
        if line.tablebase is not None:
            answer["tablebase"] = self._sign * line.tablebase
        answer["pv"] = list(line.moves[:length])
        if fields.include_san:
            answer["san"] = list(san_of(self._fen, self._chess960, line.moves[:length]))
        if fields.include_pv_visits:
            answer["pv_visits"] = list(line.move_visits[:length])
        return answer

    def statistics(self, move: MoveStatistics) -> dict[str, Any]:
        """Return the statistics of one root move."""
        low, high = sorted(self._sign * bound for bound in move.bounds)
        return {
            "move": move.move,
            "visits": move.visits,
            "prior": _rounded(move.prior),
            "wl": None if move.wl is None else self._value(move.wl),
            "d": _rounded(move.d) if move.visits else None,
            "moves_left": _rounded(move.m) if move.visits else None,
            "q": self._value(move.q),
            "deviation": _rounded(move.deviation) if move.visits and self._keeps_deviations else None,
            "u": _rounded(move.u or 0.0),
            "s": _rounded(move.s or 0.0),
            "v": None if move.v is None else self._value(move.v),
            "bounds": [low, high],
        }

    def _result(self, q: float, wdl: tuple[float, float, float]) -> dict[str, Any]:
        return {"q": self._value(q), "wdl": self._wdl(wdl)}

    def _value(self, q: float) -> float:
        return _rounded(self._sign * q)

    def _wdl(self, wdl: tuple[float, float, float]) -> list[float]:
        return [_rounded(share) for share in wdl[:: self._sign]]


def _about(problem: QueryError, kind: str, identity: str | None, turn: int | None) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    if identity is not None:
        answer["id"] = identity
    if turn is not None:
        answer["turn"] = turn
        answer["during_search"] = False
    if problem.field:
        answer["field"] = problem.field
    return {**answer, kind: str(problem)}


def _head(query: Query, turn: int, game: Game, *, during_search: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "id": query.id,
        "turn": turn,
        "during_search": during_search,
        "fen": game.fen(),
        "key": f"{game.key:016x}",
        "side_to_move": game.turn,
    }
    result, reason = game.result()
    if result != "undecided":
        answer["game_over"] = {"result": result, "reason": reason}
    return answer


def _search(report: Report) -> dict[str, Any]:
    return {
        "playouts": report.playouts,
        "evaluations": report.evaluations,
        "depth": report.depth,
        "selective_depth": report.selective_depth,
        "seconds": round(report.seconds, 3),
        "tablebase_hits": report.tablebase_hits,
        "tree_full": report.full,
    }


def _policy(children: Sequence[ChildInfo]) -> dict[str, float]:
    """Return the network's move probabilities, the highest first."""
    ordered = sorted(children, key=lambda child: -child.policy)
    return {child.move: _rounded(child.policy) for child in ordered}


def _rounded(value: float) -> float:
    return round(value, DIGITS) + 0.0  # No negative zero.
