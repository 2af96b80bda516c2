# SPDX-License-Identifier: GPL-3.0-or-later
"""Contempt: from the options to values bent in the tree and bent back where they are shown."""

from dataclasses import replace
from random import Random

import numpy
import pytest

from engine._core import Batch, Game, Tree
from engine.options import OptionError, Options
from engine.search.limits import Clock, Limits
from engine.search.player.tree import search_params
from engine.search.report import Line
from engine.search.strength.contempt import Contempt, advantage, rescaling

CLOCK = Limits(clock=Clock(1000, 1000))


def line(win: float, loss: float) -> Line:
    return Line(("e2e4",), 1, win - loss, (win, 1 - win - loss, loss), 0.0, 0.0)


def searched_root(wdl: tuple[float, float, float], fen: str | None, contempt: Contempt) -> Line:
    """The root's value in a tree that the network gave this evaluation, for the side to move."""
    options = Options(tree_memory=16, hash=1)
    tree = Tree(search_params(options, 1, contempt=contempt))
    tree.set_position(Game(fen))
    batch = Batch(1)
    tree.collect(batch, 1)
    logits = numpy.zeros(batch.move_offsets[-1], numpy.float32)
    tree.apply(batch, logits, numpy.array([wdl], numpy.float32), numpy.zeros(1, numpy.float32))
    found = tree.root_info().evaluation
    return replace(line(0.0, 0.0), q=found.q, wdl=found.wdl)


def test_by_default_values_stay_as_they_are() -> None:
    contempt = Contempt.of(Options(), "white", CLOCK)
    assert (contempt.ratio, contempt.shift) == (1.0, 0.0)
    shown = line(0.3, 0.2)
    assert contempt.shown(shown, "white") is shown
    assert searched_root((0.3, 0.5, 0.2), None, contempt).q == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("options", "elo"),
    [
        (Options(), 0.0),
        (Options(rating_advantage=80.0), 80.0),
        (Options(rating_advantage=80.0, contempt="30"), 30.0),
        (Options(contempt="Weak=150, 20", opponent="none 2000 computer Some weak Engine 1.2"), 150.0),
        (Options(contempt="Weak=150, 20", opponent="GM 2800 human Carlsen"), 20.0),
        (Options(contempt="9999"), 420.0),
        (Options(contempt="-9999", contempt_max_value=50.0), -50.0),
    ],
)
def test_the_advantage_is_that_over_this_opponent(options: Options, elo: float) -> None:
    assert advantage(options) == elo


@pytest.mark.parametrize("text", ["much", "Name=", "=", "a=b", "nan", "Name=1e999"])
def test_a_contempt_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"Elo.*NAME=Elo"):
        Options().with_uci("Contempt", text)


def test_the_shift_is_what_the_elo_is_worth_between_equal_sides() -> None:
    """A drawn position of scale s, moved by the shift of E Elo, must have the expected result of E Elo."""
    for elo in (10.0, 25.0):
        options = Options(contempt=str(elo), wdl_book_exit_bias=0.0)
        contempt = Contempt.of(options, "white", CLOCK)
        root = searched_root((0.25, 0.5, 0.25), None, contempt)  # the scale of the reference's draw rate
        expected = 1 / (1 + 10 ** (-elo / 400))
        assert (1 + root.q) / 2 == pytest.approx(expected, abs=0.001)


def test_the_stronger_side_is_the_one_that_plays() -> None:
    options = Options(contempt="100")
    for turn, fen in (("white", None), ("black", "4k3/pppppppp/8/8/8/8/PPPPPPPP/4K3 b - - 0 1")):
        contempt = Contempt.of(options, turn, CLOCK)
        assert searched_root((0.3, 0.4, 0.3), fen, contempt).q > 0.1
        other = Contempt.of(options, "black" if turn == "white" else "white", CLOCK)
        assert searched_root((0.3, 0.4, 0.3), fen, other).q < -0.1
        analysis = Contempt.of(options, turn, Limits(infinite=True))
        assert searched_root((0.3, 0.4, 0.3), fen, analysis).q == pytest.approx(0.0, abs=1e-6)
    assert Contempt.of(options.changed(contempt_mode="disable"), "white", CLOCK).shift == 0
    for mode, sign in (("white_side_analysis", 1), ("black_side_analysis", -1)):
        for turn in ("white", "black"):
            shift = Contempt.of(options.changed(contempt_mode=mode), turn, Limits(infinite=True)).shift
            assert shift * sign > 0


def test_a_target_rate_of_draws_is_met_from_the_reference_rate() -> None:
    options = Options(wdl_draw_rate_target=0.8, wdl_draw_rate_reference=0.5)
    root = searched_root((0.25, 0.5, 0.25), None, Contempt.of(options, "white", CLOCK))
    assert root.wdl[1] == pytest.approx(0.8, abs=1e-4)


def test_stronger_players_draw_more() -> None:
    ratios = [rescaling(Options(wdl_calibration_elo=elo))[0] for elo in (1500.0, 2500.0, 3500.0)]
    assert ratios[0] > ratios[1] > ratios[2] > 0
    shifts = [rescaling(Options(wdl_calibration_elo=2500.0, contempt=str(elo)))[1] for elo in (0, 50, 100)]
    assert shifts[0] == 0.0 < shifts[1] < shifts[2]


def test_shown_wdl_is_the_networks_at_full_objectivity() -> None:
    chance = Random(3)
    for _position in range(200):
        win, loss = chance.uniform(0.05, 0.3), chance.uniform(0.05, 0.3)  # no scale that is cut off
        turn = chance.choice(("white", "black"))
        fen = None if turn == "white" else "4k3/pppppppp/8/8/8/8/PPPPPPPP/4K3 b - - 0 1"
        options = Options(contempt=str(chance.uniform(-150, 150)))
        contempt = Contempt.of(options, chance.choice(("white", "black")), CLOCK)
        root = searched_root((win, 1 - win - loss, loss), fen, contempt)
        assert contempt.shown(root, turn).wdl == pytest.approx((win, 1 - win - loss, loss), abs=2e-3)
        subjective = replace(contempt, objectivity=0.0)
        assert subjective.shown(root, turn) is root


def test_values_that_are_all_but_certain_stay() -> None:
    contempt = Contempt.of(Options(contempt="100"), "white", CLOCK)
    for wdl in ((1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.0, 1.0, 0.0), (0.99995, 0.00005, 0.0)):
        assert searched_root(wdl, None, contempt).q == pytest.approx(wdl[0] - wdl[2], abs=1e-6)
        assert contempt.shown(line(wdl[0], wdl[2]), "white").q == wdl[0] - wdl[2]
