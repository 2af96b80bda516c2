# SPDX-License-Identifier: GPL-3.0-or-later
"""Training targets of the heads, with all formulas.

Value targets are computed once, by numpy; policy targets after every change of the prior, on the device. cp
are centipawns and WDL are probabilities, always for the side to move. n is a number of positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from training.config import TargetSettings

if TYPE_CHECKING:
    import torch

Floats = NDArray[np.float32]

MATE_CP = 31_000
"""Scores beyond it are mates: mate in k is 32000 - k."""

CERTAIN = 2000.0
"""Value of a mate in centipawns when scores are compared."""

NEXT_PLIES = 8
"""Number of later plies in means over labels."""


# --- value --------------------------------------------------------------------------------------------------


def stockfish_wdl(cp: NDArray[np.int16], ply: NDArray[np.int64]) -> Floats:
    """Return WDL [n, 3] of Stockfish 15.1's model of its own games (its uci.cpp, win_rate_model).

    W = 1 / (1 + exp((a - v) / b)) with a and b cubic in m = min(240, ply) / 64, and v the score in its inner
    units, 361 to a pawn; L likewise of -v.
    """
    m = np.minimum(240, ply) / 64.0
    a = ((-0.58270499 * m + 2.68512549) * m + 15.24638015) * m + 344.49745382
    b = ((-2.65734562 * m + 15.96509799) * m - 20.69040836) * m + 73.61029937
    v = np.clip(cp * 3.61, -4000.0, 4000.0)
    return _w_and_l(1 / (1 + np.exp((a - v) / b)), 1 / (1 + np.exp((a + v) / b)))


def wide_wdl(cp: NDArray[np.int16]) -> Floats:
    """Return WDL [n, 3] of logistic curves W = s((cp - 130) / 110), L = s((-cp - 130) / 110).
    Unlike the model above they distinguish 300 from 600 centipawns, as weaker players need."""
    score = np.clip(cp.astype(np.float64), -2000.0, 2000.0)
    return _w_and_l(1 / (1 + np.exp((130 - score) / 110)), 1 / (1 + np.exp((130 + score) / 110)))


def label_wdl(cp: NDArray[np.int16], ply: NDArray[np.int64], settings: TargetSettings) -> Floats:
    """Return WDL [n, 3] of an engine's score: a mixture of both curves; a mate is certain."""
    share = settings.sharp_share
    wdl = share * stockfish_wdl(cp, ply) + (1 - share) * wide_wdl(cp)
    wdl[cp > MATE_CP] = (1, 0, 0)
    wdl[cp < -MATE_CP] = (0, 0, 1)
    return wdl.astype(np.float32)


def result_wdl(results: NDArray[np.uint8], black: NDArray[np.bool_]) -> Floats:
    """Return WDL [n, 3] of game results 1 White won, 0 Black won, 2 draw; NaN for 3, unknown."""
    wdl = np.full((len(results), 3), np.nan, np.float32)
    wdl[results == 2] = (0, 1, 0)
    won = results < 2
    ours = (results == 1) != black
    wdl[won & ours] = (1, 0, 0)
    wdl[won & ~ours] = (0, 0, 1)
    return wdl


def mean_of_next(wdl: Floats, game: NDArray[np.int64], decay: float, *, own: bool) -> Floats:
    """Return the mean WDL [n, 3] of each position and the next NEXT_PLIES of its game, with weights decay^k.

    The TD(lambda) return over labels instead of values (Sutton and Barto, 12.1), truncated and normalised.
    With own=False it excludes the position itself, like KataGo's short-term value targets (KataGoMethods.md).
    game: [n] number of each position's game, whose positions are consecutive. Without later positions the
    result is the position's own WDL.
    """
    total = wdl * float(own)
    weights = np.full((len(wdl), 1), float(own), np.float32)
    for step in range(1, NEXT_PLIES + 1):
        same = (game[step:] == game[:-step])[:, None]
        later = wdl[step:, ::-1] if step % 2 else wdl[step:]
        total[:-step] += np.float32(decay**step) * same * later
        weights[:-step] += np.float32(decay**step) * same
    mean: Floats = np.where(weights > 0, total / np.maximum(weights, 1e-9), wdl).astype(np.float32)
    return mean


def mixed(wdl: Floats, other: Floats, share: float) -> Floats:
    """Return (1 - share) wdl + share other; wdl alone where other is NaN."""
    return np.where(np.isnan(other), wdl, (1 - share) * wdl + share * np.nan_to_num(other)).astype(np.float32)


def sharpened(wdl: Floats, exponent: float) -> Floats:
    """Return WDL [n, 3] raised to a power, with sums of 1: its logits are multiplied by the exponent."""
    raised: Floats = np.maximum(wdl, np.float32(1e-9)) ** np.float32(exponent)
    raised /= raised.sum(axis=1, keepdims=True)
    return raised


def rescored(wdl: Floats, results: NDArray[np.int8]) -> Floats:
    """Return WDL with tablebase results replacing it, as in lc0's rescorer.
    results: [n] 1, 0, -1 for the side to move, -128 unknown."""
    certain = np.stack([results == 1, results == 0, results == -1], axis=1).astype(np.float32)
    return np.where(certain.any(axis=1, keepdims=True), certain, wdl).astype(np.float32)


def _w_and_l(win: NDArray[np.float64], loss: NDArray[np.float64]) -> Floats:
    return np.stack([win, 1 - win - loss, loss], axis=1).astype(np.float32)


# --- policy -------------------------------------------------------------------------------------------------


def comparable_scores(cp: NDArray[np.int16]) -> NDArray[np.float32]:
    """Return scores in centipawns for comparison: limited, and nearer mates are better."""
    score = np.clip(cp.astype(np.float32), -1900, 1900)
    plies = 32_000 - np.abs(cp.astype(np.float32))
    mate = np.sign(cp) * (CERTAIN - np.minimum(plies, 50))
    return np.where(np.abs(cp) > MATE_CP, mate, score).astype(np.float32)


def listed_scores(
    best: NDArray[np.uint8], lines: NDArray[np.uint8], lines_cp: NDArray[np.int16], settings: TargetSettings
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return indices [n, L + 1] (255 none) and comparable scores of the moves that an engine lists.

    best: [n] the deeper search's move. lines: [n, L] moves of the search for several lines. Its scores are
    comparable, so best gets `best_bonus_cp` more than the first line.
    """
    scores = comparable_scores(lines_cp)
    places = np.concatenate([lines, best[:, None]], axis=1)
    top = np.where(lines[:, :1] != 255, scores[:, :1], 0) + np.float32(settings.best_bonus_cp)
    scores = np.concatenate([scores, top], axis=1)
    is_best = (lines == best[:, None]) & (best != 255)[:, None]
    scores[:, :-1] = np.where(is_best & ~is_best[:, :1], top, scores[:, :-1])
    places[is_best.any(axis=1), -1] = 255
    return places, scores


def improved_policy(
    log_prior: torch.Tensor,
    score: torch.Tensor,
    listed: torch.Tensor,
    legal: torch.Tensor,
    settings: TargetSettings,
    exponent: float,
) -> torch.Tensor:
    """Return the policy target [n, K]: softmax(exponent log prior + score / T).

    The closed form of a policy improved under a KL penalty to the prior (Abdolmaleki et al. 2018, MPO; Grill
    et al. 2020, "Monte-Carlo tree search as regularized policy optimization"). T = score_cp (1 + score_slope
    |s0|) with the best score s0: a centipawn matters less in decided games. An unlisted move counts as the
    worst listed one less unlisted_nats.

    log_prior, score (centipawns), listed and legal (bool): [n, K] over the legal moves of each position.
    """
    best = score.masked_fill(~listed, -1e9).amax(dim=1, keepdim=True)
    worst = score.masked_fill(~listed, 1e9).amin(dim=1, keepdim=True)
    temperature = settings.score_cp * (1 + settings.score_slope * best.abs().clamp(max=CERTAIN))
    nats = (score - best) / temperature
    others = (worst - best) / temperature - settings.unlisted_nats
    nats = nats.where(listed, others)
    any_listed = listed.any(dim=1, keepdim=True)
    nats = nats.where(any_listed, nats.new_zeros(()))
    return (exponent * log_prior + nats).masked_fill(~legal, -1e9).softmax(dim=1)


def softened_policy(policy: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return policy^(1/temperature) [n, K], normalised: KataGo's soft policy target (KataGoMethods.md)."""
    soft = policy.clamp(min=1e-12).pow(1 / temperature) * (policy > 0)
    return soft / soft.sum(dim=1, keepdim=True).clamp(min=1e-12)


# --- weights and distributions ------------------------------------------------------------------------------

SURPRISE_LIMIT = 4.0
"""Maximum weight of a position, in means of the surprise."""

VALUE_BINS = 32
"""Number of bins of the expected score."""

VALUE_SIGMA = 0.75
"""Standard deviation of the smoothing, in bins."""


def surprise_weights(surprise: torch.Tensor, share: float) -> torch.Tensor:
    """Return the sampling weights [n]: (1 - share) + share min(KL / mean KL, SURPRISE_LIMIT).

    Policy surprise weighting of KataGo (KataGoMethods.md, with share 0.5). surprise: [n] divergence of the
    policy target from the prior; NaN (no prior) counts as the mean.
    """
    relative = surprise / surprise.nanmean().clamp(min=1e-6)
    return (1 - share) + share * relative.nan_to_num(1.0).clamp(max=SURPRISE_LIMIT)


def binned_value(wdl: torch.Tensor) -> torch.Tensor:
    """Return the expected score as a histogram [n, VALUE_BINS] of a normal distribution, clipped at 0 and 1.

    HL-Gauss (Imani and White 2018; Farebrother et al. 2024, "Stop Regressing", sigma of 0.75 bins).
    """
    import torch

    score = (wdl[:, 0] + wdl[:, 1] / 2).unsqueeze(1)
    edges = torch.linspace(0, 1, VALUE_BINS + 1, device=wdl.device)
    below = torch.special.ndtr((edges - score) * (VALUE_BINS / VALUE_SIGMA))
    mass = below[:, 1:] - below[:, :-1]
    return mass / (below[:, -1:] - below[:, :1])
