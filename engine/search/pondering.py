"""Thinking on the opponent's time.

The GUI sends the position after the move that the opponent is expected to play. To search that position would
cut off all other replies, and the tree would be lost when one of them is played. So the root stays where it
is, at the opponent's move, and all visits go to the expected one. After another move what the last search
knows of it is still there; after the expected one its tree is as large as if it had been the root. (lc0
searches the position before the move, too, but all replies. The expected one then gets only a part of the
visits; as long as it is played in half of all cases, and it is in more, all of them do it more good.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from engine.evaluation.pipeline import Pipeline
from engine.search.batching import BatchSizes
from engine.search.control import SearchControl
from engine.search.driver import Search
from engine.search.limits import Limits
from engine.search.report import Line, Report
from engine.search.static_choice import static_line
from engine.search.task import SearchTask
from engine.search.tree import SearchTree


def ponder(
    tree: SearchTree,
    pipeline: Pipeline,
    task: SearchTask,
    sizes: BatchSizes,
    *,
    control: SearchControl,
    on_report: Callable[[Report], None] | None,
    log: Callable[[str], None],
) -> Report | None:
    """Search until the opponent has played the expected move, or `control` stops it. Leaves the root at the
    position before that move.

    task: of the position after it. All reports are of that position; the one returned has a line. None
    if there is no move before the position.
    """

    def show(report: Report) -> None:
        own = after_expected_move(report)
        if on_report is not None and own is not None:
            on_report(own)

    before = task_before_move(task)
    if before is None:
        return None
    search = Search(tree.set_root(before), pipeline, before, sizes, control=control, on_report=show, log=log)
    report = search.run()
    found = after_expected_move(report)
    if found is None:
        found = Report.unsearched(static_line(task.game, task.root_moves, task.expected), report.playouts)
    return found


def task_before_move(task: SearchTask) -> SearchTask | None:
    """The search of the last move of a task's game, from the position before it, until `ponderhit`. None if
    no move was played."""
    if not task.game.moves():
        return None
    game = task.game.copy()
    expected = game.pop()
    limits = Limits(ponder=True, until_ponderhit=True, search_moves=(expected,))
    return replace(task, game=game, legal_moves=game.legal_moves(), limits=limits, expected=None)


def after_expected_move(report: Report) -> Report | None:
    """The report of a search that has the expected move as its only one, as one of the position after it;
    None if nothing is known of that."""
    if not report.lines or len(report.lines[0].moves) < 2:
        return None
    line = _after_first_move(report.lines[0])
    return replace(
        report,
        best_move=line.moves[0],
        ponder=line.moves[1] if len(line.moves) > 1 else None,
        lines=(line,),
        nodes=line.visits,
        depth=max(1, report.depth - 1),
        selective_depth=max(1, report.selective_depth - 1),
        draw_score=-report.draw_score,
        statistics=(),
        root_statistics=None,
    )


def _after_first_move(line: Line) -> Line:
    """A line without its first move, from the view of the other side."""
    mate = line.mate
    if mate is not None:
        mate = -mate if mate < 0 else 1 - mate
    return replace(
        line,
        moves=line.moves[1:],
        q=-line.q,
        wdl=(line.wdl[2], line.wdl[1], line.wdl[0]),
        moves_left=max(0.0, line.moves_left - 1),
        mate=mate,
    )
