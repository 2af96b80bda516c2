# SPDX-License-Identifier: GPL-3.0-or-later
"""Formatting of UCI output: options, `info` lines, move statistics, the best move."""

from __future__ import annotations

from engine.options import Options
from engine.search.report import MoveStatistics, Report
from engine.search.scores import thousandths
from protocol.common.settings.spec import Setting


def option_line(option: Setting, name: str = "") -> str:
    """Return `option name … type … default …`, an answer to `uci`. name: replaces the title.

    UCI has no real numbers: such an option is a string that must be a number.
    """
    default = option.text(option.default)
    if isinstance(option.default, bool):
        kind = f"check default {default}"
    elif isinstance(option.default, int):
        kind = f"spin default {default} min {option.low:.0f} max {option.high:.0f}"
    elif option.choices:
        kind = f"combo default {default}" + "".join(f" var {choice}" for choice in option.choices)
    else:
        kind = f"string default {default or '<empty>'}"
    return f"option name {name or option.title} type {kind}"


def info_lines(report: Report, options: Options) -> str:
    """Return a report as `info` lines, one per principal variation."""
    head = f"info depth {max(1, report.depth)} seldepth {max(1, report.selective_depth)}"
    head += f" time {round(report.seconds * 1000)}"
    tail = f" hashfull {report.hashfull} nps {report.nodes_per_second}"
    if options.show_eps:
        tail += f" eps {report.evaluations_per_second}"
    tail += f" tbhits {report.tablebase_hits}"
    lines = []
    for number, line in enumerate(report.lines, 1):
        middle = f" nodes {line.visits if options.per_pv_counters else report.nodes}"
        score = f"mate {line.mate}"
        if line.mate is None:
            score = f"cp {line.score(options.score_type, report.draw_score)}"
        middle += f" score {score}"
        if options.show_wdl:
            win, draw, loss = thousandths(line.wdl)
            middle += f" wdl {win} {draw} {loss}"
        if options.show_moves_left:
            middle += f" movesleft {round(line.moves_left / 2)}"
        lines.append(f"{head}{middle}{tail} multipv {number} pv {' '.join(line.moves)}")
    return "\n".join(lines)


def statistics_lines(report: Report) -> str:
    """Return statistics as `info string` lines: the root's moves, the most visited last, then the root. GUIs
    parse this layout, which is lc0's."""
    moves = sorted(report.statistics, key=lambda move: (move.visits, move.s or 0.0))
    if report.root_statistics is not None:
        moves.append(report.root_statistics)
    return "\n".join(f"info string {_statistics(move)}" for move in moves)


def best_move_line(report: Report) -> str:
    """Return `bestmove …`; `(none)` without a legal move, as in Stockfish and expected by GUIs."""
    line = f"bestmove {report.best_move or '(none)'}"
    return line + (f" ponder {report.ponder}" if report.best_move and report.ponder else "")


def _statistics(move: MoveStatistics) -> str:
    percent = f"{move.prior * 100:5.{1 if move.prior >= 0.99995 else 2}f}"
    text = f"{move.move:<5} ({move.index:<4}) N: {move.visits:7d} (+{move.in_flight:2d}) (P: {percent}%) "
    if move.wl is None:
        text += "(WL:  -.-----) (D: -.---) (M:  -.-) "
    else:
        text += f"(WL: {move.wl:8.5f}) (D: {move.d:5.3f}) (M: {move.m:4.1f}) "
    text += f"(Q: {move.q:8.5f}) "
    if move.u is not None and move.s is not None:
        text += f"(U: {move.u:6.5f}) (S: {move.s:8.5f}) "
    text += "(V:  -.----)" if move.v is None else f"(V: {move.v:7.4f})"
    lower, upper = move.bounds
    mark = "T" if lower == upper else {(0, 1): "W", (-1, 0): "L"}.get(move.bounds, "")
    return text + (f" ({mark})" if mark else "")
