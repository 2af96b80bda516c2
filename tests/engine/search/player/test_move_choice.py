# SPDX-License-Identifier: GPL-3.0-or-later
"""Temperature: when it applies, how moves are drawn, and that a search plays so."""

from collections import Counter
from random import Random

import pytest

from engine.options import Options
from engine.search.limits import Limits
from engine.search.player.move_choice import Candidate, choose_move, temperature_at
from engine.search.session import Session

MOVES = (Candidate("e2e4", 80, 0.30), Candidate("d2d4", 20, 0.28), Candidate("a2a3", 10, -0.3))
UNVISITED = Candidate("h2h4", 0, 0.0)


def draws(options: Options, temperature: float, moves: tuple[Candidate, ...] = MOVES) -> Counter[str]:
    random = Random(1)
    return Counter(choose_move(moves, options, temperature, random) for _ in range(4000))


@pytest.mark.parametrize(
    ("temperature", "visits"),
    [(0.0, (1, 0, 0)), (1e-9, (1, 0, 0)), (0.5, (6400, 400, 100)), (1.0, (80, 20, 10))],
)
def test_visits_are_drawn_to_the_power_of_the_temperature(
    temperature: float, visits: tuple[int, int, int]
) -> None:
    drawn = draws(Options(), temperature, (*MOVES, UNVISITED))
    found = [drawn[move] / 4000 for move in ("e2e4", "d2d4", "a2a3")]
    assert found == pytest.approx([each / sum(visits) for each in visits], abs=0.02)


def test_visit_offset_moves_chances_to_or_from_rare_moves() -> None:
    assert draws(Options(temp_visit_offset=10.0), 1.0, (*MOVES, UNVISITED))["h2h4"] > 0
    assert "a2a3" not in draws(Options(temp_visit_offset=-10.0), 1.0)


@pytest.mark.parametrize(("cutoff", "left"), [(29.0, {"e2e4", "d2d4"}), (31.0, {"e2e4", "d2d4", "a2a3"})])
def test_the_value_cutoff_is_in_percent_of_winning_chance(cutoff: float, left: set[str]) -> None:
    assert set(draws(Options(temp_value_cutoff=cutoff), 1.0, (*MOVES, UNVISITED))) == left


def test_best_move_is_played_when_no_move_has_weight() -> None:
    assert draws(Options(), 1.0, (UNVISITED, Candidate("a2a4", 0, 0.0))) == {"h2h4": 4000}
    assert draws(Options(temp_visit_offset=-100.0), 1.0) == {"e2e4": 4000}
    offset_and_cutoff = Options(temp_visit_offset=5.0, temp_value_cutoff=50.0)
    assert draws(offset_and_cutoff, 1.0, (UNVISITED,)) == {"h2h4": 4000}


@pytest.mark.parametrize(
    ("settings", "temperatures"),
    [
        ({}, {0: 1.0, 500: 1.0}),
        ({"temp_decay_moves": 10}, {0: 1.0, 5: 0.5, 9: 0.1, 10: 0.0, 99: 0.0}),
        ({"temp_decay_moves": 10, "temp_decay_delay_moves": 20}, {0: 1.0, 20: 1.0, 25: 0.5, 30: 0.0}),
        ({"temp_decay_moves": 10, "temp_endgame": 0.3}, {0: 1.0, 5: 0.5, 8: 0.3, 99: 0.3}),
        ({"temp_cutoff_move": 16}, {14: 1.0, 15: 0.0}),
        ({"temp_cutoff_move": 16, "temp_endgame": 0.4}, {14: 1.0, 15: 0.4}),
    ],
)
def test_decay_delay_and_cutoffs(settings: dict[str, float], temperatures: dict[int, float]) -> None:
    options = Options(temperature=1.0).changed(**settings)
    assert {moves: temperature_at(options, moves) for moves in temperatures} == pytest.approx(temperatures)


def test_decay_does_not_raise_a_temperature_of_zero() -> None:
    assert temperature_at(Options(temp_decay_moves=10, temp_endgame=0.5), 3) == 0.0


def test_a_search_plays_with_temperature_and_keeps_its_lines() -> None:
    session = Session(Options(temperature=5.0, smart_pruning_factor=0.0), in_process=True)
    played = Counter[str]()
    for _ in range(60):
        session.new_game()
        report = session.search(Limits(nodes=200))
        assert report.best_move is not None
        played[report.best_move] += 1
        assert report.lines[0].visits > 1
        if report.ponder:
            session.set_position(moves=[report.best_move, report.ponder])
    assert len(played) > 5
    session.options = session.options.changed(temp_cutoff_move=1)
    session.new_game()
    report = session.search(Limits(nodes=200))
    assert report.best_move == report.lines[0].moves[0]


def test_noise_changes_the_priors_once_for_each_position() -> None:
    def priors(epsilon: float) -> tuple[dict[str, float], dict[str, float]]:
        options = Options(dirichlet_noise_epsilon=epsilon, smart_pruning_factor=0.0, verbose_move_stats=True)
        session = Session(options, in_process=True)
        reports = [session.search(Limits(nodes=nodes)) for nodes in (50, 100)]
        first, second = ({move.move: move.prior for move in report.statistics} for report in reports)
        return first, second

    plain, noisy = priors(0.0), priors(0.5)
    assert plain[0] == plain[1]
    assert noisy[0] == noisy[1]
    assert noisy[0] != plain[0]


def test_nodes_count_playouts_where_the_option_says_so() -> None:
    for as_playouts in (False, True):
        options = Options(smart_pruning_factor=0.0, nodes_as_playouts=as_playouts)
        session = Session(options, in_process=True)
        first = session.search(Limits(nodes=500))
        session.set_position(moves=first.lines[0].moves[:2])
        second = session.search(Limits(nodes=500))
        assert (second.playouts == 500) is as_playouts
        assert (second.nodes == 500) is not as_playouts
