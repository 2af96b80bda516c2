# SPDX-License-Identifier: GPL-3.0-or-later
"""HTML of reviews: a page for each game and one for all. Each page is one file, and loads nothing.

A page is a frame with its data as JSON; page.js, and game.js or index.js draw the rest. The board is that of
board_page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import chess

from engine.apps.review.annotating import remark
from engine.apps.review.games import GameReview
from engine.apps.review.judging import FAULTS, INACCURACY, LOST, PHASES, SERIOUS, MoveReview, loser_of
from engine.apps.review.scale import CENTRE, WIDTH, expected
from engine.pages import FOLDER as PAGES
from engine.pages.board import SCRIPT, STYLE, pieces

FOLDER = PAGES / "review"

GENERATOR = '<meta name="generator" content="wavefront review">'
"""Mark of the pages: a review replaces them, and no other files."""

TROUBLE_S, TROUBLE_SHARE = 20.0, 0.1
"""Time trouble: seconds left, or share of the time at the start, whichever is more."""


def page(title: str, body: str, styles: Sequence[Path], scripts: Sequence[Path], data: dict[str, Any]) -> str:
    """Return a whole page."""
    style = "\n".join(map(_compact, styles))
    script = "\n".join(map(_compact, scripts))
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'{GENERATOR}<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head>\n<body>\n{body}\n"
        f'<script type="application/json" id="data">{text}</script>\n'
        f'<script type="module">\n{script}</script></body></html>\n'
    )


def _compact(path: Path) -> str:
    """Return a script or style without indents and lines of comments."""
    text = re.sub(r"^\s*/\*.*?\*/", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def game_page(review: GameReview, player: str = "", index: str = "index.html", **more: Any) -> str:
    """Return the page of one game.

    player: name of the side at the bottom. index: link to the page of all games. more: data of a page that is
    served: board: link to the page's board, and what `grown` has.
    """
    headers = review.headers
    names = f"{headers.get('White', '?')} – {headers.get('Black', '?')}"
    about = [headers.get(name, "?") for name in ("Event", "Date", "TimeControl")]
    opening = " ".join(review.opening) if review.opening else ""
    body = (
        (FOLDER / "game.html")
        .read_text("utf-8")
        .format(
            index=escape(index),
            names=escape(names),
            result=escape(headers.get("Result", "*")),
            facts=" · ".join(escape(each) for each in (*about, opening) if each.strip("?. ")),
            verdict=verdict(review),
            summary=summary(review),
            people=escape(review.people),
        )
    )
    scripts = (SCRIPT, FOLDER / "page.js", FOLDER / "game.js")
    data = {**game_data(review, player), **more}
    return page(names, pieces() + body, (FOLDER / "style.css", STYLE), scripts, data)


def grown(review: GameReview) -> dict[str, Any]:
    """Return what changes on the page of a game while its review grows."""
    told = {"verdict": verdict(review), "summary": summary(review), "people": escape(review.people)}
    return {**game_data(review, ""), **told}


def game_data(review: GameReview, player: str) -> dict[str, Any]:
    """Return what game.js draws. Scores are White's: expected in thousandths, pawns in hundredths."""
    moves, notes = review.moves, {note.ply: note for note in review.notes}
    board = chess.Board(moves[0].fen, chess960=_chess960(review)) if moves else chess.Board()
    start = board.fen(), board.turn, board.fullmove_number
    entries: list[dict[str, Any]] = []
    shown: dict[int, dict[str, Any]] = {}
    for ply in range(len(moves) + 1):
        if (note := notes.get(ply)) is not None:
            lines = [found for line in note.lines if (found := _line("author", ply, board, line))]
            shown[ply] = {"text": note.text, "glyphs": note.glyphs, "lines": lines}
        if ply == len(moves):
            break
        move = moves[ply]
        entry: dict[str, Any] = {"u": move.uci, "s": move.san}
        if move.mark or move.unclear:
            entry |= {"m": move.mark or "unclear", "r": remark(move, lost_here=ply == review.decisive)}
        if move.mark in FAULTS or move.unclear:
            entry["b"] = move.best_uci
            entry["l"] = [_line("better", ply, board, move.line)]
        if move.mark in SERIOUS:
            entry["q"] = " ".join(board.uci(each) for each in board.legal_moves)
        if move.clock is not None:
            entry["c"] = round(move.clock)
        if move.spent is not None:
            entry["t"] = round(move.spent)
        board.push_uci(move.uci)
        if move.reply and "l" in entry:
            entry["l"].append(_line("answer", ply + 1, board, move.reply))
        entries.append(entry)
    return {
        "fen": start[0],
        "chess960": _chess960(review),
        "scale": (CENTRE, WIDTH),
        "least": round(1000 * INACCURACY),
        "white": start[1],
        "number": start[2],
        "bottom": "black" if player and review.headers.get("Black") == player else "white",
        "moves": entries,
        "notes": shown,
        "lost": review.decisive,
        "expected": [round(1000 * each) for each in review.expected],
        "pawns": [round(100 * each) for each in review.pawns],
    }


def _line(name: str, ply: int, board: chess.Board, line: Sequence[str]) -> dict[str, Any]:
    """Return a line of SAN moves from a position after `ply` moves, for a page."""
    board, ucis = board.copy(stack=False), []
    for san in line:
        move = board.parse_san(san)
        ucis.append(board.uci(move))
        board.push(move)
    return {"name": name, "from": ply, "u": " ".join(ucis), "s": " ".join(line)}


def _chess960(review: GameReview) -> bool:
    return "960" in review.headers.get("Variant", "")


def verdict(review: GameReview) -> str:
    """Return one or two sentences on where the game was lost, as HTML."""
    move = next((each for each in review.moves if each.ply == review.decisive), None)
    if move is None:
        worst = max(
            (each for each in review.moves if each.mark in SERIOUS), key=lambda each: each.loss, default=None
        )
        loser = loser_of(review.expected, review.headers.get("Result", "*"))
        doubt = "It is unclear which move lost the game. " if loser and loser[-1] < LOST else ""
        if worst is None:
            return f"{doubt}No move lost much."
        move, begin = worst, f"{doubt}The largest mistake was"
    else:
        begin = f"{'White' if move.white else 'Black'} lost the game with"
    change = f"{expected(move.before):.0%} to {expected(move.after):.0%}"
    better = f"Better was <b>{escape(move.best)}</b>." if move.best != move.san else ""
    why = " ".join(escape(reason.text) for reason in move.reasons)
    return (
        f'{begin} <a href="#m{move.ply + 1}"><b>{escape(move.label)}</b></a>: '
        f"the expected score fell from {change}. {better} {why}"
    )


def summary(review: GameReview) -> str:
    """Return the table of accuracy, in all and by phase, marks and time by side."""
    heads = ("accuracy", *PHASES, "?!", "?", "??", "missed wins", "time")
    rows = []
    for side, (name, white) in enumerate((("White", True), ("Black", False))):
        own = [move for move in review.moves if move.white == white]
        spent = [move.spent for move in own if move.spent is not None]
        cells = [
            *(
                figure(sides[side])
                for sides in (review.accuracy, *(review.phases[phase] for phase in PHASES))
            ),
            *(str(sum(move.mark == mark for move in own)) for mark in FAULTS),
            str(sum(move.missed_win for move in own)),
            f"{sum(spent) / 60:.0f} min" if spent else "–",
        ]
        rows.append((review.headers.get(name, "?"), cells))
    # One row for each figure: the table fits a phone.
    table = "".join(
        f"<tr><td>{head}</td>" + "".join(f'<td class="n">{cells[index]}</td>' for _, cells in rows) + "</tr>"
        for index, head in enumerate(heads)
    )
    names = "".join(f'<th class="n">{escape(name)}</th>' for name, _ in rows)
    return f"<h2>Both players</h2><table><tr><th></th>{names}</tr>{table}</table>"


def figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def index_page(reviews: Sequence[GameReview], skipped: Sequence[tuple[str, str]], player: str = "") -> str:
    """Return the page of all games: a table, and trends of a player."""
    rows = "".join(f"<tr><td>{escape(place)}</td><td>{escape(why)}</td></tr>" for place, why in skipped)
    body = (
        (FOLDER / "index.html")
        .read_text("utf-8")
        .format(count=len(reviews), skipped=f"<h2>Skipped</h2><table>{rows}</table>" if rows else "")
    )
    data = {"games": [index_data(review) for review in reviews], "player": player}
    return page("Review", body, (FOLDER / "style.css",), (FOLDER / "page.js", FOLDER / "index.js"), data)


def index_data(review: GameReview) -> dict[str, Any]:
    """Return what index.js tells of a game."""
    headers, lost = review.headers, next((each for each in review.moves if each.ply == review.decisive), None)
    least = _trouble_s(headers.get("TimeControl", ""))
    return {
        "n": review.number,
        "d": headers.get("Date", ""),
        "e": headers.get("Event", "").strip("?"),
        "w": headers.get("White", "?"),
        "b": headers.get("Black", "?"),
        "r": headers.get("Result", "*"),
        "l": lost.label if lost else "",
        "p": review.decisive,
        "a": review.accuracy and [each if each is None else round(each, 1) for each in review.accuracy],
        "o": review.opening[1] if review.opening else "",
        "t": int(any(move.clock is not None for move in review.moves)),
        "s": [[_sums(part) for part in _parts(review.moves, least, white=white)] for white in (True, False)],
    }


def _parts(moves: Sequence[MoveReview], least_s: float, *, white: bool) -> list[list[MoveReview]]:
    """Return a side's moves by phase, and those in time trouble."""
    own = [move for move in moves if move.white == white]
    parts = [[move for move in own if move.phase == phase] for phase in PHASES]
    return [*parts, [move for move in own if move.clock is not None and move.clock < least_s]]


def _sums(moves: Sequence[MoveReview]) -> list[int]:
    """Return the number of moves, their loss in thousandths, and the numbers of their marks."""
    marks = [sum(move.mark == mark for move in moves) for mark in FAULTS]
    return [len(moves), round(1000 * sum(move.loss for move in moves)), *marks]


def _trouble_s(control: str) -> float:
    found = re.match(r"[0-9]{1,6}", control)
    return max(TROUBLE_S, TROUBLE_SHARE * float(found[0])) if found else TROUBLE_S
