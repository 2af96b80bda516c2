# SPDX-License-Identifier: GPL-3.0-or-later
"""What people play, by the policy of the levels' network: its best temperature, and the error.

python -m benchmarks.strength.people --maia FOLDER

FOLDER has maia-1100, -1500 and -1900.pb.gz. The positions are before moves that lose LOST by the judge of
review_marks, of the half to choose on. The error is the mean difference from Maia's share, of the played move
and of the best other move by the policy of wavefront-gpu. WARMTH and WARMTH_PER_POINT of
engine/apps/review/people.py are a round pair with nearly the least sum of both.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.strength.review_marks import judged_games
from engine._core import Game
from engine.apps.analysis.evaluation import outputs
from engine.apps.review.people import UNRATED, WARMTH, WARMTH_PER_POINT
from engine.options import Options
from engine.search.pool import SearchPool
from engine.search.strength.levels import NETWORK

RATINGS = (1100, 1500, 1900)
LOST, FIRST_PLY, POSITIONS = 0.1, 6, 500
WARMTHS, CHANGES = np.arange(1.2, 2.7, 0.1), (-0.0012, -0.001, -0.0008, -0.0004, 0.0)

Policy = Mapping[str, float]


def faults() -> list[tuple[Game, str]]:
    """Return positions and the moves that were played there, each once."""
    found: dict[tuple[str, str], tuple[Game, str]] = {}
    for judged in judged_games():
        game = Game()
        for ply, move in enumerate(judged.moves):
            loss = (judged.expected[ply] - judged.expected[ply + 1]) * (1 if game.turn == "white" else -1)
            if judged.half == 0 and ply >= FIRST_PLY and loss >= LOST:
                found.setdefault((game.fen(), move), (game.copy(), move))
            game.push_uci(move)
    return random.Random(1).sample([*found.values()], POSITIONS)


def errors(
    warmth: float,
    change: float,
    ours: list[Policy],
    theirs: Mapping[int, list[Policy]],
    moves: list[list[str]],
) -> list[float]:
    """Return the mean errors of the moves of each position, in order."""
    off = []
    for rating, policies in theirs.items():
        temperature = warmth + change * (rating - UNRATED)
        for own, maia, asked in zip(ours, policies, moves, strict=True):
            weights = {move: share ** (1 / temperature) for move, share in own.items()}
            total = sum(weights.values())
            off.append([abs(weights[move] / total - maia[move]) for move in asked])
    return [float(each) for each in np.mean(off, axis=0)]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--maia", type=Path, required=True, metavar="FOLDER")
    folder = parser.parse_args().maia
    positions = faults()
    games = [game for game, _ in positions]
    networks = [NETWORK, "wavefront-gpu", *(str(folder / f"maia-{rating}.pb.gz") for rating in RATINGS)]
    with SearchPool() as pool:
        ours, judge, *theirs = (
            [each["policy"] for each in outputs(games, *pool.evaluate(games, Options(weights=name)).result())]
            for name in networks
        )
    moves = []
    for (_, played), policy in zip(positions, judge, strict=True):
        others = {move: share for move, share in policy.items() if move != played}
        moves.append([played, max(others or policy, key=lambda move: policy[move])])
    by_rating = dict(zip(RATINGS, theirs, strict=True))
    pairs = [(WARMTH, WARMTH_PER_POINT), *itertools.product(WARMTHS, CHANGES)]
    found = [(warmth, change, *errors(warmth, change, ours, by_rating, moves)) for warmth, change in pairs]
    print("WARMTH, its change with the rating, errors of the played and the best other move: shipped, best")
    for row in (found[0], *sorted(found, key=lambda row: sum(row[2:]))[:5]):
        print("{:.2f} {:+.4f} {:.3f} {:.3f}".format(*row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
