# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver with the instant evaluator: limits, early stops, batches, reuse."""

from collections.abc import Iterator
from contextlib import closing
from random import Random
from time import perf_counter

import pytest

from engine._core import Game
from engine.evaluation.send.pipeline import InstantPipeline
from engine.options import Options
from engine.search.control import SearchControl
from engine.search.limits import Clock, Limits
from engine.search.loop.batching import BatchSizes
from engine.search.loop.driver import Search
from engine.search.player.task import SearchTask
from engine.search.session import Session
from tests.engine.core.tree.search_helpers import new_tree


@pytest.fixture
def session() -> Iterator[Session]:
    opened = Session(in_process=True)
    yield opened
    opened.close()


def set_options(session: Session, **values: object) -> None:
    session.options = session.options.changed(**values)


@pytest.mark.parametrize("nodes", [1, 2, 10, 777, 20_000])
def test_the_node_limit_is_met_exactly(session: Session, nodes: int) -> None:
    set_options(session, smart_pruning_factor=0.0)
    assert session.search(Limits(nodes=nodes)).nodes == nodes


def test_smart_pruning_saves_visits_that_cannot_change_the_choice(session: Session) -> None:
    """One move stalemates, which counts as lost here; the other gets all visits, and is chosen long before
    the limit."""
    session.set_position("7k/8/5KQ1/8/8/p7/P7/8 w - - 0 1")
    limits = Limits(nodes=400_000, search_moves=("g6f7", "g6e4"))
    set_options(session, draw_score=-1.0, sticky_endgames=False, smart_pruning_factor=0.0)
    whole = session.search(limits)
    session.clear()
    set_options(session, smart_pruning_factor=1.33)
    pruned = session.search(limits)
    assert pruned.best_move == whole.best_move == "g6e4"
    assert 0.75 * 400_000 < pruned.nodes < whole.nodes == 400_000


def test_the_depth_limit_is_the_mean_depth_of_the_leaves(session: Session) -> None:
    report = session.search(Limits(depth=4))
    assert report.depth == 4
    assert report.selective_depth >= 4


def test_a_solved_position_is_not_searched_at_full_speed() -> None:
    """Every line of it ends in a mate that is proven: `idle` tells whoever drives the search to wait."""
    game = Game("k7/8/1K6/8/8/8/8/3R4 b - - 0 1")
    tree, options = new_tree(game), Options()
    task = SearchTask(game, game.legal_moves(), Limits(infinite=True), options, perf_counter(), Random(1))
    search = Search(tree, InstantPipeline(tree, 32), task, BatchSizes(32), control=SearchControl())
    idle = []
    for _step in range(1000):
        assert search.advance()
        idle.append(search.idle)
    assert not idle[0]
    assert all(idle[-100:])


def test_stop_before_the_start_still_gives_a_move(session: Session) -> None:
    control = SearchControl()
    control.stop()
    assert session.search(Limits(infinite=True), control=control).best_move in session.game.legal_moves()


@pytest.mark.parametrize("clock", [None, Clock(10**9, 10**9)])
def test_a_full_tree_ends_no_search_and_is_reported_of_once(clock: Clock | None) -> None:
    said: list[str] = []
    options = Options().changed(tree_memory=16, smart_pruning_factor=0.0)
    with closing(Session(options, in_process=True, log=said.append)) as session:
        report = session.search(Limits(nodes=200_000, clock=clock))
    assert report.nodes == 200_000
    assert report.full
    assert report.hashfull >= 900
    assert ["RamLimitMb" in text for text in said] == [True]


def test_a_report_is_a_consistent_picture(session: Session) -> None:
    set_options(session, multipv=3, verbose_move_stats=True, smart_pruning_factor=0.0, value_choice_share=1.0)
    report = session.search(Limits(nodes=3000))
    assert [line.visits for line in report.lines] == sorted(
        (line.visits for line in report.lines), reverse=True
    )
    assert report.best_move == report.lines[0].moves[0]
    assert report.ponder == report.lines[0].moves[1]
    assert sum(move.visits for move in report.statistics) == report.nodes - 1
    assert all(move.in_flight == 0 for move in report.statistics)
    for line in report.lines:
        assert sum(line.wdl) == pytest.approx(1, abs=1e-5)
        assert line.wdl[0] - line.wdl[2] == pytest.approx(line.q, abs=1e-5)
