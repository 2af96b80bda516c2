# SPDX-License-Identifier: GPL-3.0-or-later
"""SVG of a review: the course of a game, and boards."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import chess
import chess.svg

from engine.review.judging import FAULTS, MoveReview

WIDTH, HEIGHT = 640, 160
COLORS = {"inaccuracy": "#c9a400", "mistake": "#e07b00", "blunder": "#d02020", "only move": "#2080d0"}


def course(expected: Sequence[float], moves: Sequence[MoveReview], decisive: int | None) -> str:
    """Return a chart of White's expected score by ply, with a dot for each marked move, and a line at the
    decisive one.

    Dots link to the moves' ids, `m1` for the first.
    """
    last = max(1, len(expected) - 1)

    def place(ply: int) -> tuple[float, float]:
        return round(WIDTH * ply / last, 1), round(HEIGHT * (1 - expected[ply]), 1)

    points = " ".join("{},{}".format(*place(ply)) for ply in range(len(expected)))
    dots = []
    if decisive is not None:
        x, _ = place(decisive + 1)
        dots.append(f'<line class="decisive" x1="{x}" y1="0" x2="{x}" y2="{HEIGHT}"/>')
    for move in moves:
        if move.mark:
            x, y = place(move.ply + 1)
            radius = 6 if move.ply == decisive else 4
            shape = f'cx="{x}" cy="{y}" r="{radius}" fill="{COLORS[move.mark]}"'
            dots.append(
                f'<a href="#m{move.ply + 1}"><circle {shape}><title>{escape(move.label)}</title></circle></a>'
            )
    return (
        f'<svg class="course" viewBox="-8 -8 {WIDTH + 16} {HEIGHT + 16}" role="img" '
        f'aria-label="White\'s expected score">'
        f'<rect class="black" width="{WIDTH}" height="{HEIGHT}"/>'
        f'<polygon class="white" points="0,{HEIGHT} {points} {WIDTH},{HEIGHT}"/>'
        f'<line class="even" x1="0" y1="{HEIGHT / 2}" x2="{WIDTH}" y2="{HEIGHT / 2}"/>'
        f'<polyline points="{points}"/>{"".join(dots)}</svg>'
    )


def position(move: MoveReview, *, chess960: bool = False) -> str:
    """Return the board before a move, with an arrow for the move played and one for the best."""
    board = chess.Board(move.fen, chess960=chess960)
    arrows = [_arrow(board, board.parse_uci(move.uci), "#d02020b0" if move.mark in FAULTS else "#2080d0b0")]
    if move.best and move.best != move.san:
        arrows.append(_arrow(board, board.parse_san(move.best), "#208040b0"))
    return str(chess.svg.board(board, arrows=arrows, orientation=move.white, size=300, coordinates=True))


def _arrow(board: chess.Board, move: chess.Move, color: str) -> chess.svg.Arrow:
    return chess.svg.Arrow(move.from_square, move.to_square, color=color)


def bars(counts: Sequence[tuple[str, int]], total: int) -> str:
    """Return horizontal bars of labelled counts."""
    rows = []
    for index, (label, count) in enumerate(counts):
        y, width = 22 * index, round(400 * count / max(1, total), 1)
        rows.append(
            f'<text x="0" y="{y + 15}">{escape(label)}</text>'
            f'<rect x="150" y="{y + 3}" width="{width}" height="16"/>'
            f'<text x="{156 + width}" y="{y + 15}">{count}</text>'
        )
    return f'<svg class="bars" viewBox="0 0 640 {22 * len(counts) + 4}" role="img">{"".join(rows)}</svg>'
