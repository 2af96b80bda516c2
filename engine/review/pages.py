# SPDX-License-Identifier: GPL-3.0-or-later
"""HTML of reviews: a page for each game and one for all. Each page is one file, and loads nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from statistics import fmean

from engine.review.annotating import remark
from engine.review.charts import bars, course, position
from engine.review.games import GameReview
from engine.review.judging import FAULTS, MoveReview, critical, expected

STYLE = Path(__file__).with_name("style.css").read_text("utf-8")

GENERATOR = '<meta name="generator" content="wavefront review">'
"""Mark of the pages: a review replaces them, and no other files."""

MARKS = ("inaccuracy", "mistake", "blunder")


def page(title: str, body: str) -> str:
    """Return a whole page."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'{GENERATOR}<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def game_page(review: GameReview, index: str = "index.html") -> str:
    """Return the page of one game. index: link to the page of all games; empty for none."""
    headers = review.headers
    names = f"{headers.get('White', '?')} – {headers.get('Black', '?')}"
    about = [headers.get(name, "?") for name in ("Event", "Date", "TimeControl")]
    opening = " ".join(review.opening) if review.opening else ""
    facts = " · ".join(escape(each) for each in (*about, opening) if each.strip("?. "))
    chess960 = "960" in headers.get("Variant", "")
    parts = [
        f'<p class="soft"><a href="{escape(index)}">all games</a></p>' if index else "",
        f"<h1>{escape(names)} {escape(headers.get('Result', '*'))}</h1>",
        f'<p class="soft">{facts}</p>',
        verdict(review),
        course(review.expected, review.moves, review.decisive),
        summary(review),
        moments(review, chess960=chess960),
        move_table(review),
        '<p class="soft">The expected score is win + draw / 2. Accuracy is computed from it '
        "by the formula of lichess.</p>",
    ]
    return page(names, "\n".join(filter(None, parts)))


def verdict(review: GameReview) -> str:
    """Return one sentence on where the game was lost."""
    move = next((each for each in review.moves if each.ply == review.decisive), None)
    if move is None:
        worst = critical(review.moves, 1)
        if not worst:
            return '<p class="verdict">No move lost much.</p>'
        move, begin = worst[0], "The largest mistake was"
    else:
        loser = "White" if move.white else "Black"
        begin = f"{loser} lost the game with"
    change = f"{expected(move.before):.0%} to {expected(move.after):.0%}"
    line = " ".join(move.line)
    return (
        f'<p class="verdict">{begin} <a href="#m{move.ply + 1}"><b>{escape(move.label)}</b></a>: '
        f"the expected score fell from {change}. Better was <b>{escape(move.best)}</b> ({escape(line)}).</p>"
    )


def summary(review: GameReview) -> str:
    """Return the table of accuracy and marks by side."""
    rows = []
    for name, white, accuracy in (("White", True, review.accuracy[0]), ("Black", False, review.accuracy[1])):
        own = [move for move in review.moves if move.white == white]
        counts = "".join(f'<td class="n">{sum(move.mark == mark for move in own)}</td>' for mark in MARKS)
        missed = sum(move.missed_win for move in own)
        shown = "–" if accuracy is None else f"{accuracy:.1f}"
        player = escape(review.headers.get(name, "?"))
        rows.append(
            f'<tr><td>{player}</td><td class="n">{shown}</td>{counts}<td class="n">{missed}</td></tr>'
        )
    heads = "".join(f'<th class="n">{name}</th>' for name in ("accuracy", "?!", "?", "??", "missed wins"))
    return f'<div class="scroll"><table><tr><th></th>{heads}</tr>{"".join(rows)}</table></div>'


def moments(review: GameReview, *, chess960: bool) -> str:
    """Return boards of the moves that lost most, and of the best one."""
    chosen = critical(review.moves, decisive=review.decisive)
    chosen.sort(key=lambda move: move.ply != review.decisive)  # The decisive one first.
    best = max(
        (move for move in review.moves if move.mark == "only move"),
        key=lambda move: expected(move.after),
        default=None,
    )
    figures = [figure(move, chess960=chess960, lost_here=move.ply == review.decisive) for move in chosen]
    if best is not None:
        figures.append(figure(best, chess960=chess960))
    return f'<h2>Critical moments</h2><div class="moments">{"".join(figures)}</div>' if figures else ""


def figure(move: MoveReview, *, chess960: bool, lost_here: bool = False) -> str:
    """Return a board with its move and remark."""
    said = escape(remark(move, lost_here=lost_here))
    caption = f'<b class="{css(move)}">{escape(move.label)}</b> {said}'
    kind = ' class="decisive"' if lost_here else ""
    return f"<figure{kind}>{position(move, chess960=chess960)}<figcaption>{caption}</figcaption></figure>"


def css(move: MoveReview) -> str:
    return "only" if move.mark == "only move" else move.mark


def move_table(review: GameReview) -> str:
    """Return all moves with expected scores, best moves and clocks."""
    rows = []
    clocks = any(move.clock is not None for move in review.moves)
    for move, value in zip(review.moves, review.expected[1:], strict=True):
        best = escape(move.best) if move.mark in FAULTS else ""
        clock = f"<td class='n'>{_clock(move.clock)}</td>" if clocks else ""
        numbers = f'<td class="n">{value:.0%}</td><td class="n">{move.loss:.0%}</td>'
        name = f'<td class="{css(move)}">{escape(move.label)}</td>'
        rows.append(f'<tr id="m{move.ply + 1}">{name}{numbers}<td>{best}</td>{clock}</tr>')
    heads = '<th>move</th><th class="n">White</th><th class="n">lost</th><th>best</th>'
    heads += '<th class="n">clock</th>' if clocks else ""
    return f'<h2>Moves</h2><div class="scroll"><table><tr>{heads}</tr>{"".join(rows)}</table></div>'


def _clock(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


@dataclass(slots=True)
class Group:
    """Moves of many games that have something in common."""

    games: set[int] = field(default_factory=set)
    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MARKS, 0))

    def add(self, game: int, moves: Sequence[MoveReview], accuracy: float | None = None) -> None:
        if not moves:
            return
        self.games.add(game)
        self.losses += [move.loss for move in moves]
        for move in moves:
            if move.mark in self.marks:
                self.marks[move.mark] += 1
        if accuracy is not None:
            self.accuracies.append(accuracy)


def index_page(
    reviews: Sequence[GameReview], skipped: Sequence[tuple[str, str]], links: Sequence[str]
) -> str:
    """Return the page of all games: totals by player, color, opening and phase, and a table of games."""
    by: dict[str, dict[str, Group]] = {
        name: defaultdict(Group) for name in ("player", "color", "opening", "phase")
    }
    for review in reviews:
        for color, white in (("White", True), ("Black", False)):
            own = [move for move in review.moves if move.white == white]
            accuracy = review.accuracy[0 if white else 1]
            by["player"][review.headers.get(color, "?")].add(review.number, own, accuracy)
            by["color"][color].add(review.number, own, accuracy)
            for phase in ("opening", "middlegame", "endgame"):
                by["phase"][phase].add(review.number, [move for move in own if move.phase == phase])
        name = review.opening[1].partition(":")[0] if review.opening else "other"
        by["opening"][name].add(review.number, review.moves)
    totals = [(mark, sum(group.marks[mark] for group in by["color"].values())) for mark in MARKS]
    parts = [
        f"<h1>{len(reviews)} reviewed games</h1>",
        bars(totals, max((count for _, count in totals), default=1)),
        games_table(reviews, links),
    ]
    parts += [group_table(name, groups) for name, groups in by.items() if groups]
    if skipped:
        rows = "".join(f"<tr><td>{escape(place)}</td><td>{escape(why)}</td></tr>" for place, why in skipped)
        parts.append(f'<h2>Skipped</h2><div class="scroll"><table>{rows}</table></div>')
    return page("Review", "\n".join(parts))


def games_table(reviews: Sequence[GameReview], links: Sequence[str]) -> str:
    rows = []
    for review, link in zip(reviews, links, strict=True):
        headers = review.headers
        move = next((each for each in review.moves if each.ply == review.decisive), None)
        shown = ["–" if each is None else f"{each:.1f}" for each in review.accuracy]
        names = f"{headers.get('White', '?')} – {headers.get('Black', '?')}"
        cells = [
            f'<td class="names"><a href="{escape(link)}">{escape(names)}</a></td>',
            f'<td class="nowrap">{escape(headers.get("Result", "*"))}</td>',
            f'<td class="nowrap">{escape(move.label) if move else ""}</td>',
            f'<td class="n">{shown[0]}</td><td class="n">{shown[1]}</td>',
            f'<td class="wide">{escape(review.opening[1]) if review.opening else ""}</td>',
        ]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    heads = "<th>game</th><th>result</th><th>lost by</th>"
    heads += "".join(f'<th class="n">{side}</th>' for side in ("White", "Black"))
    heads += '<th class="wide">opening</th>'
    return f'<div class="scroll"><table><tr>{heads}</tr>{"".join(rows)}</table></div>'


def group_table(name: str, groups: dict[str, Group]) -> str:
    """Return a table of groups, those with most games first. Groups of parts of games have no accuracy."""
    rows = []
    accurate = any(group.accuracies for group in groups.values())
    for label, group in sorted(groups.items(), key=lambda item: -len(item[1].games))[:30]:
        accuracy = f"{fmean(group.accuracies):.1f}" if group.accuracies else "–"
        accuracy = f'<td class="n">{accuracy}</td>' if accurate else ""
        counts = "".join(f'<td class="n">{group.marks[mark]}</td>' for mark in MARKS)
        lost = f"{fmean(group.losses):.1%}" if group.losses else "–"
        rows.append(
            f'<tr><td>{escape(label)}</td><td class="n">{len(group.games)}</td>{accuracy}'
            f'<td class="n">{lost}</td>{counts}</tr>'
        )
    names = ("games", *(("accuracy",) if accurate else ()), "loss per move", "?!", "?", "??")
    heads = "".join(f'<th class="n">{head}</th>' for head in names)
    return (
        f'<h2>By {name}</h2><div class="scroll"><table><tr><th></th>{heads}</tr>{"".join(rows)}</table></div>'
    )
