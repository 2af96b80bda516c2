# SPDX-License-Identifier: GPL-3.0-or-later
"""Limited strength: which level options ask for, how it draws its move, and what it never does."""

import threading
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from engine._core import Game
from engine.options import Options
from engine.search.control import SearchControl
from engine.search.limits import Clock, Limits
from engine.search.player.task import SearchTask
from engine.search.session import Session
from engine.search.strength.levels import (
    LEAST_ELO,
    MOST_ELO,
    NETWORK,
    TABLE,
    Level,
    calibrated,
    choose,
    level_of,
    with_network,
)
from engine.search.time.keeper import TimeKeeper


@dataclass(frozen=True)
class Child:
    """A root move, as the core describes it."""

    move: str
    policy: float
    visits: int = 0


CHILDREN = (Child("e2e4", 0.6, 30), Child("d2d4", 0.3, 60), Child("a2a3", 0.1, 10))


def task_of(
    game: Game | None = None, options: Options | None = None, limits: Limits | None = None
) -> SearchTask:
    game = game or Game()
    return SearchTask(
        game,
        game.legal_moves(),
        limits or Limits(nodes=1),
        options or Options(),
        0.0,
        Random(5),
        TimeKeeper(),
    )


def drawn(level: Level, task: SearchTask, children: Any = CHILDREN, draws: int = 4000) -> dict[str, float]:
    """Return the share of each move in many draws."""
    counts = Counter(choose(level, task.game, children, task.options, task.random) for _ in range(draws))
    return {move: count / draws for move, count in counts.items()}


# -- which level


def test_without_options_the_engine_has_full_strength() -> None:
    assert level_of(Options()) is None
    assert with_network(Options(weights="maia.pb.gz")).weights == "maia.pb.gz"


def test_levels_are_ordered_and_use_their_network() -> None:
    levels = [calibrated(elo) for elo in range(LEAST_ELO, MOST_ELO + 1, 100)]
    assert all(weak.nodes <= strong.nodes for weak, strong in pairwise(levels))
    assert len({(level.nodes, level.temperature) for level in levels}) == len(levels)
    assert with_network(Options(limit_strength=True, weights="maia.pb.gz")).weights == NETWORK


def test_each_row_of_the_table_is_a_level() -> None:
    for elo, nodes, temperature in TABLE:
        assert calibrated(elo) == Level(nodes, temperature, elo=elo)
    assert (TABLE[0][0], TABLE[-1][0]) == (LEAST_ELO, MOST_ELO)


def test_skill_level_counts_without_the_limit_only() -> None:
    assert level_of(Options(skill_level=0)) == calibrated(LEAST_ELO)
    limited = level_of(Options(skill_level=0, limit_strength=True, elo=2000))
    assert limited is not None
    assert limited.elo == 2000
    middle = [level_of(Options(skill_level=level)) for level in range(20)]
    elos = [level.elo for level in middle if level is not None and level.elo is not None]
    assert elos == sorted(set(elos))
    assert len(elos) == 20


@pytest.mark.parametrize(
    "limits", [Limits(infinite=True), Limits(mate=3), Limits(nodes=5, search_moves=("e2e4",))]
)
def test_analysis_is_never_weakened(limits: Limits) -> None:
    task = task_of(options=Options(limit_strength=True), limits=limits)
    assert task.weakened() is task


@pytest.mark.parametrize(
    "limits",
    [Limits(clock=Clock(60_000, 60_000)), Limits(movetime_ms=500), Limits(depth=9), Limits(ponder=True)],
)
def test_a_move_of_a_game_is_limited_by_nodes(limits: Limits) -> None:
    task = task_of(options=Options(limit_strength=True, elo=2000), limits=limits).weakened()
    assert task.level == calibrated(2000)
    assert task.limits == replace(limits, nodes=calibrated(2000).nodes)


def test_a_smaller_limit_counts() -> None:
    options = Options(limit_strength=True, elo=2800)
    assert task_of(options=options, limits=Limits(nodes=7)).weakened().limits.nodes == 7


# -- the draw


@pytest.mark.parametrize(
    ("level", "shares"),
    [
        (Level(1, 1.0), {"e2e4": 0.6, "d2d4": 0.3, "a2a3": 0.1}),
        (Level(100, 0.5), {"e2e4": 900 / 4600, "d2d4": 3600 / 4600, "a2a3": 100 / 4600}),
        (Level(1, 0.0), {"e2e4": 1.0}),
        (Level(100, 0.0), {"d2d4": 1.0}),
        (Level(1, 1.0, top_p=0.9), {"e2e4": 2 / 3, "d2d4": 1 / 3}),
        (Level(1, 1.0, top_p=0.01), {"e2e4": 1.0}),
        (Level(1, 1.0, mix=0.25, second={"a2a3": 1.0}), {"e2e4": 0.45, "d2d4": 0.225, "a2a3": 0.325}),
    ],
)
def test_move_is_drawn_from_the_policy_or_the_visits(level: Level, shares: dict[str, float]) -> None:
    """From the policy with one node, else from the visits."""
    assert drawn(level, task_of()) == pytest.approx(shares, abs=0.03)


def test_a_repertoire_answers_a_position_with_one_move() -> None:
    repertoires = [
        drawn(Level(1, 1.0), task_of(options=Options(human_repertoire=number)), draws=5)
        for number in range(1, 30)
    ]
    assert all(len(moves) == 1 for moves in repertoires)
    assert len({move for moves in repertoires for move in moves}) > 1


def test_repertoire_has_one_move_in_any_order_of_moves() -> None:
    options = Options(human_play=True, human_repertoire=3)
    orders = ["g1f3 d7d5 d2d4 g8f6", "d2d4 d7d5 g1f3 g8f6", "d2d4 g8f6 g1f3 d7d5", "g1f3 g8f6 d2d4 d7d5"]
    seen = set()
    for order in orders:
        game = Game()
        for move in order.split():
            game.push_uci(move)
        task = task_of(game, options, Limits(nodes=1)).weakened()
        assert task.level is not None
        assert list(task.legal_moves) == game.legal_moves()
        seen.add((task.game.fen(), choose(task.level, task.game, CHILDREN, options, Random())))  # type: ignore[arg-type]
    assert len(seen) == 1


@pytest.mark.parametrize("multipv", [1, 3])
def test_the_first_line_begins_with_the_move_that_is_played(multipv: int) -> None:
    session = Session(
        Options(hash=1, tree_memory=16, limit_strength=True, elo=1900, multipv=multipv), in_process=True
    )
    played = set()
    for seed in range(20):
        session.new_game()
        session._player.random.seed(seed)
        report = session.search(Limits(nodes=50), play=True)
        assert report.lines[0].moves[0] == report.best_move
        assert len({line.moves[0] for line in report.lines}) == len(report.lines) <= multipv
        played.add(report.best_move)
    assert len(played) > 1


def test_a_mix_of_a_second_network_that_is_missing_still_moves() -> None:
    level = Level(1, 1.0, mix=1.0)
    assert choose(level, Game(), CHILDREN, Options(), Random(1)) in {child.move for child in CHILDREN}  # type: ignore[arg-type]


def test_a_repertoire_ends_with_the_opening() -> None:
    game = Game("7k/8/8/8/8/8/4P3/K7 w - - 0 1")
    for _ in range(10):
        for move in ("a1a2", "h8h7", "a2a1", "h7h8"):
            game.push_uci(move)
    children = (Child("a1a2", 0.5), Child("e2e4", 0.5))
    assert len(drawn(Level(1, 1.0), task_of(game, Options(human_repertoire=3)), children)) == 2


def test_level_plays_the_book_when_its_draw_is_narrow() -> None:
    """By the number of named openings, but no move that the network gives no share."""
    children = (Child("c2c4", 0.5), Child("e2e4", 0.2), Child("d2d4", 0.2), Child("g1h3", 0.001))
    narrow = drawn(Level(1, 0.12, elo=1600), task_of(), children)
    assert set(narrow) == {"e2e4", "d2d4", "c2c4"} and narrow["e2e4"] > narrow["d2d4"] > 3 * narrow["c2c4"]
    assert drawn(Level(1, 0.83, elo=1200), task_of(), children)["c2c4"] > 0.4
    assert drawn(Level(1, 0.12), task_of(), children)["c2c4"] > 0.9
    asked = Game("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKB1R w KQkq - 0 1")
    assert drawn(Level(1, 0.12, elo=1600), task_of(asked), children[:3])["c2c4"] > 0.9


# -- errors that people of a strength do not make

MATE = "6k1/5ppp/8/8/8/8/8/K2R4 w - - 0 1"
HANGING = "k7/8/8/2p1p3/8/8/3Q4/K7 w - - 0 1"
"""The queen on d4 can be taken by a pawn."""


def test_a_mate_in_one_is_seen_from_its_level_on() -> None:
    children = (Child("a1a2", 0.99), Child("d1d8", 0.01))
    assert drawn(Level(1, 1.0, elo=1700), task_of(Game(MATE)), children) == {"d1d8": 1.0}
    assert drawn(Level(1, 1.0, elo=1000), task_of(Game(MATE)), children)["a1a2"] > 0.9


@pytest.mark.parametrize("level", [Level(1, 1.0), Level(25, 0.25, elo=2000)])
@pytest.mark.parametrize("fen", ["8/8/8/8/3BB2k/8/8/K7 w - - 0 1", "8/8/3k4/8/8/3K4/8/q7 b - - 0 1"])
def test_a_bare_king_is_mated(level: Level, fen: str) -> None:
    game, random = Game(fen), Random(4)
    for ply in range(60):
        if not (moves := game.legal_moves()):
            break
        children = [Child(move, 1.0, 1) for move in moves]
        game.push_uci(random.choice(moves) if ply % 2 else choose(level, game, children, Options(), random))  # type: ignore[arg-type]
    assert game.in_check and not game.legal_moves()


@pytest.mark.integration
def test_the_queen_is_not_left_to_be_taken() -> None:
    children = (Child("d2d4", 0.9), Child("d2d3", 0.1))
    assert drawn(Level(1, 1.0, elo=1500), task_of(Game(HANGING)), children) == {"d2d3": 1.0}
    assert drawn(Level(1, 1.0, elo=900), task_of(Game(HANGING)), children)["d2d4"] > 0.8


def test_a_move_is_played_when_every_move_loses_the_queen() -> None:
    assert drawn(Level(1, 1.0, elo=1500), task_of(Game(HANGING)), (Child("d2d4", 1.0),)) == {"d2d4": 1.0}


@pytest.mark.integration
def test_queens_may_be_exchanged() -> None:
    taking = Game("k2q4/8/8/8/8/8/3Q4/K7 w - - 0 1")
    assert (
        drawn(Level(1, 1.0, elo=1500), task_of(taking), (Child("d2d8", 0.9), Child("d2a5", 0.1)))["d2d8"]
        > 0.8
    )
    offering = Game("k7/8/8/2q5/8/8/2PQ4/K1R5 w - - 0 1")
    children = (Child("d2d5", 0.5), Child("d2e1", 0.5))
    assert drawn(Level(1, 1.0, elo=1500), task_of(offering), children) == {"d2e1": 1.0}


# -- in a session


def test_a_limited_engine_searches_its_nodes_and_an_analysis_all() -> None:
    with closing(
        Session(Options(limit_strength=True, elo=2800, smart_pruning_factor=0.0), in_process=True)
    ) as session:
        limits = Limits(nodes=50_000)
        assert session.search(limits, play=True).nodes == calibrated(2800).nodes
        assert session.search(limits).nodes == 50_000
        # What the analysis found does not make the level stronger.
        assert session.search(limits, play=True).playouts == calibrated(2800).nodes


def test_pondering_does_not_make_a_level_stronger() -> None:
    session = Session(Options(limit_strength=True, elo=2200), in_process=True)
    control = SearchControl(pondering=True)
    timer = threading.Timer(0.2, control.ponder_hit)
    timer.start()
    try:
        report = session.search(Limits(clock=Clock(60_000, 60_000), ponder=True), control=control, play=True)
    finally:
        timer.join()
        session.close()
    assert not control.pondering
    assert report.nodes == calibrated(2200).nodes
