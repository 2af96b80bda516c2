"""What rounding the encoders' weights to 8 and 4 bits does to a network's outputs. Needs no GPU.

    python -m benchmarks.backends.weight_formats [--networks shipped,random:t82,random:bt4] [--positions N]

Networks are files, `shipped` or random:SHAPE. Their outputs with rounded weights, in float32, are compared
with those of the unrounded network, over the legal moves of positions from random games of a fixed seed.
"""

from __future__ import annotations

import argparse
import json
import random
from itertools import pairwise
from pathlib import Path

import numpy as np

from engine._core import Game
from engine.evaluation.encoding import encode_games
from evaluator.backends.reference import ReferenceBackend
from evaluator.commands.verify import network_of
from evaluator.gpu.plan.quantised import WeightFormat, rounded_network
from evaluator.network import SHIPPED_NETWORK
from protocol.batch import EvaluationBatch, PositionBatch


def positions(count: int, input_format: int) -> PositionBatch:
    """One of each of `count` games of random moves, 4 to 83 plies in."""
    choice = random.Random(5)
    games: list[Game] = []
    while len(games) < count:
        game = Game()
        for _ in range(4 + len(games) % 80):
            moves = game.legal_moves()
            if not moves:
                break
            game.push_uci(choice.choice(moves))
        if game.legal_moves():
            games.append(game)
    return encode_games(games, input_format=input_format)[0]


def errors(result: EvaluationBatch, expected: EvaluationBatch, batch: PositionBatch) -> dict[str, float]:
    """Of the logits: largest and root mean square, within each position's legal moves after taking their mean
    away, as a softmax does; of W, D and L: largest and mean; moves left: largest; and the share of positions
    with the same best move."""
    logits, same, spreads = [], [], []
    for start, end in pairwise(batch.move_offsets):
        a, b = result.logits[start:end], expected.logits[start:end]
        logits.append((a - a.mean()) - (b - b.mean()))
        spreads.append(np.square(b - b.mean()).mean())
        same.append(np.argmax(a) == np.argmax(b))
    off = np.concatenate(logits)
    wdl = np.abs(result.wdl - expected.wdl)
    return {
        "logits_largest": float(np.abs(off).max()),
        "logits_rms": float(np.sqrt(np.square(off).mean())),
        "logits_deviation": float(np.sqrt(np.mean(spreads))),
        "wdl_largest": float(wdl.max()),
        "wdl_mean": float(wdl.mean()),
        "moves_left": float(np.abs(result.moves_left - expected.moves_left).max()),
        "same_best_move": float(np.mean(same)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", default="shipped,random:t82,random:bt4")
    parser.add_argument("--positions", type=int, default=64)
    parser.add_argument("--json", type=Path, help="write everything there too")
    arguments = parser.parse_args()
    report: dict[str, dict[str, dict[str, float]]] = {}
    print(f"{'':34}  logits: largest, rms (deviation)   W D L: largest, mean   moves left   same best move")
    for name in arguments.networks.split(","):
        network = network_of(str(SHIPPED_NETWORK) if name == "shipped" else name)
        batch = positions(arguments.positions, network.input_format.value)
        expected = ReferenceBackend(network).evaluate(batch)
        for form in WeightFormat:
            result = ReferenceBackend(rounded_network(network, form)).evaluate(batch)
            row = errors(result, expected, batch)
            report.setdefault(name, {})[form.value] = row
            print(
                f"{Path(name).name + ' ' + form.value:34}  "
                f"{row['logits_largest']:15.3f}  {row['logits_rms']:.4f} ({row['logits_deviation']:.3f})  "
                f"{row['wdl_largest']:14.4f}  {row['wdl_mean']:.5f}  {row['moves_left']:11.2f}  "
                f"{row['same_best_move']:15.1%}",
                flush=True,
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
