# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the real positions for calibrating and checking backends, in every input format of lc0.

    python scripts/sample_positions.py SHARD... > evaluator/backends/common/sample.npz

The shards are files of `python -m training label` or `import`. Each contributes equally many random
positions, both along games and from branches.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine._core import Game
from engine.apps.shards.shard import read_shard
from engine.evaluation.link.encoding import encode_games
from evaluator.backends.common.sample import POSITIONS, SAME_PLANES
from evaluator.network.schema import InputFormat
from protocol.batch import PositionBatch
from training.data.replay import games_at


def sampled(shards: list[Path], seed: int) -> list[Game]:
    """Return POSITIONS games in random order, each at a position with several legal moves."""
    choice = random.Random(seed)
    games: list[Game] = []
    for place, path in enumerate(shards):
        wanted = (POSITIONS - len(games)) // (len(shards) - place)
        shard = read_shard(path)
        rows = choice.sample(range(shard.positions + shard.branches), 2 * wanted)
        found = [game.copy() for _, game in games_at(shard, set(rows)) if len(game.legal_moves()) > 1]
        games += choice.sample(found, wanted)
    choice.shuffle(games)
    return games


def columns(batches: Mapping[InputFormat, PositionBatch]) -> dict[str, NDArray[Any]]:
    """Return the arrays of FILE for batches in each format."""
    result: dict[str, NDArray[Any]] = {}
    for form, batch in batches.items():
        result[f"{form.name}.planes"] = batch.positions["planes"]
        result[f"{form.name}.rule50"] = batch.positions["rule50"]
        result[f"{form.name}.move_offsets"] = batch.move_offsets
        result[f"{form.name}.moves"] = batch.moves
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shards", nargs="+", type=Path, metavar="SHARD")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    games = sampled(arguments.shards, arguments.seed)
    batches = {
        form: encode_games(games, input_format=form.value)[0]
        for form in InputFormat
        if form not in SAME_PLANES
    }
    arrays: dict[str, Any] = columns(batches)
    np.savez_compressed(sys.stdout.buffer, **arrays)


if __name__ == "__main__":
    main()
