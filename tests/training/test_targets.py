# SPDX-License-Identifier: GPL-3.0-or-later
"""The formulas of targets, on cases that can be worked out by hand."""

import math

import numpy as np
import pytest

from training import targets
from training.config import TargetSettings

SETTINGS = TargetSettings()


def cp(*scores: int) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    return np.array(scores, np.int16)


def test_stockfish_wins_half_at_one_pawn_at_ply_64() -> None:
    wdl = targets.stockfish_wdl(cp(100, 0, -100), np.array([64, 64, 64]))
    assert wdl[0, 0] == pytest.approx(0.5, abs=0.02)
    assert wdl[2].tolist() == pytest.approx(wdl[0, ::-1].tolist())
    assert wdl[1, 0] == pytest.approx(wdl[1, 2])
    assert wdl.sum(axis=1).tolist() == pytest.approx([1, 1, 1])


def test_the_wide_curve_still_tells_large_scores_apart() -> None:
    sharp = targets.stockfish_wdl(cp(300, 500), np.array([40, 40]))
    wide = targets.wide_wdl(cp(300, 500))
    assert sharp[1, 0] - sharp[0, 0] < 0.001
    assert wide[1, 0] - wide[0, 0] > 0.1


def test_mates_are_certain() -> None:
    wdl = targets.label_wdl(cp(31_990, -31_991), np.array([10, 10]), SETTINGS)
    assert wdl.tolist() == [[1, 0, 0], [0, 0, 1]]


def test_results_are_seen_from_the_side_to_move() -> None:
    results = np.array([1, 1, 0, 2, 3], np.uint8)
    wdl = targets.result_wdl(results, np.array([False, True, True, False, False]))
    assert wdl[:4].tolist() == [[1, 0, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0]]
    assert np.isnan(wdl[4]).all()


def test_means_over_next_plies_change_sides_and_end_with_the_game() -> None:
    won, lost, drawn = (1, 0, 0), (0, 0, 1), (0, 1, 0)
    wdl = np.array([drawn, lost, won, drawn], np.float32)
    game = np.array([0, 0, 0, 1])
    mean = targets.mean_of_next(wdl, game, 0.5, own=True)
    # Its own draw, the opponent's loss a ply on (weight 1/2), its own win two plies on (1/4).
    assert mean[0].tolist() == pytest.approx([0.75 / 1.75, 1 / 1.75, 0])
    assert mean[2].tolist() == [1, 0, 0]
    later = targets.mean_of_next(wdl, game, 0.5, own=False)
    assert later[0].tolist() == pytest.approx([1, 0, 0])
    assert later[3].tolist() == [0, 1, 0]


def test_the_deeper_searchs_move_leads_the_lines() -> None:
    lines = np.array([[3, 7, 9, 255]] * 3, np.uint8)
    lines_cp = np.array([[40, 30, 20, 0]] * 3, np.int16)
    best = np.array([3, 9, 5], np.uint8)
    places, scores = targets.listed_scores(best, lines, lines_cp, SETTINGS)
    assert places.tolist() == [[3, 7, 9, 255, 255], [3, 7, 9, 255, 255], [3, 7, 9, 255, 5]]
    assert scores[0, :3].tolist() == [40, 30, 20]
    assert scores[1, :3].tolist() == [40, 30, 50]
    assert scores[2, [0, 4]].tolist() == [40, 50]


def test_a_nearer_mate_is_the_better_one() -> None:
    scores = targets.comparable_scores(cp(31_999, 31_990, 5000, -5000, -31_990, -31_999))
    assert (np.diff(scores) < 0).all()


def test_the_policy_is_the_prior_times_the_exponential_of_scores() -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install '.[train]'")
    prior = torch.tensor([[0.5, 0.3, 0.1, 0.1, 0.0]]).log().clamp(min=-50)
    score = torch.tensor([[10.0, 50.0, 0.0, 0.0, 0.0]])
    listed = torch.tensor([[True, True, False, False, False]])
    legal = torch.tensor([[True, True, True, True, False]])
    policy = targets.improved_policy(prior, score, listed, legal, SETTINGS, 1.0)[0].tolist()
    temperature = 40 * (1 + 0.0024 * 50)
    worst = math.exp(-40 / temperature)
    weights = [0.5 * worst, 0.3, *([0.1 * worst * math.exp(-0.8)] * 2), 0]
    assert policy == pytest.approx([weight / sum(weights) for weight in weights], abs=1e-5)
    unlisted = targets.improved_policy(prior, score, listed & False, legal, SETTINGS, 1.0)[0].tolist()
    assert unlisted == pytest.approx([0.5, 0.3, 0.1, 0.1, 0], abs=1e-5)


def test_a_softened_policy_keeps_to_the_legal_moves() -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install '.[train]'")
    soft = targets.softened_policy(torch.tensor([[0.81, 0.01, 0.18, 0.0]]), 2.0)[0].tolist()
    roots = [0.9, 0.1, 0.18**0.5]
    assert soft == pytest.approx([*(root / sum(roots) for root in roots), 0])


def test_binned_value_is_distributed_around_the_score() -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install '.[train]'")
    score = torch.linspace(0, 1, 21)
    bins = targets.binned_value(torch.stack([score, 0 * score, 1 - score], dim=1))
    assert bins.shape == (21, targets.VALUE_BINS)
    assert torch.allclose(bins.sum(1), torch.ones(21))
    middles = (torch.arange(targets.VALUE_BINS) + 0.5) / targets.VALUE_BINS
    mean = bins @ middles
    assert (mean[2:-2] - score[2:-2]).abs().max() < 1e-3
    assert (mean.diff() > 0).all()
    assert bins[0].argmax() == 0
    assert bins[-1].argmax() == targets.VALUE_BINS - 1


def test_tablebases_replace_w_d_l_where_they_know_it() -> None:
    wdl = np.full((4, 3), 1 / 3, np.float32)
    made = targets.rescored(wdl, np.array([1, 0, -1, -128], np.int8))
    assert made[:3].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert np.array_equal(made[3], wdl[3])
