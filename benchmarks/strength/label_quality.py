# SPDX-License-Identifier: GPL-3.0-or-later
"""How well short searches of an engine find what a deep one finds: the ceiling of labels made so.

python -m benchmarks.strength.label_quality data/heldout --labels 4000:1500:warm 40000:15000

Each position is labelled again with `nodes:line_nodes`, from an empty hash, or `warm`: after labelling its
game's earlier positions, as `wavefront-training label` does. Rows of the table:

    best move      the move of the first search alone
    first line     the move of the second search alone
    lines          the policy target without a prior
    prior, lines   the policy target of training, with the network of --prior
    prior          that network alone

Figures are those of `wavefront-training report`; the engine judges unlisted moves with --nodes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from engine._core import Game
from engine.options import Options
from evaluator.network import network_file
from training.config import TargetSettings
from training.data.moves import move_code
from training.data.reading import shards_of
from training.data.table import NO_PLACE
from training.evaluation import Evaluation
from training.label.engine import Labeller
from training.label.label import Label
from training.label.settings import LabelSettings
from training.report.figures import NetworkReport, network_report
from training.report.judging import judge_of
from training.report.kinds import kinds_of
from training.report.positions import DeepPositions, read_positions
from training.targets import improved_policy, label_wdl, listed_scores

TARGET = ("prior_exponent", "score_cp", "best_bonus_cp")
"""Settings of the policy target that the command line may change."""


@dataclass(frozen=True, slots=True)
class Depth:
    """A kind of label. text: as on the command line. warm: with the searches of the game's history."""

    text: str
    nodes: int
    line_nodes: int
    warm: bool


def depth_of(text: str) -> Depth:
    """Return the kind of label of `nodes[:line_nodes][:warm]`. Raises ValueError."""
    words = text.split(":")
    warm = words[-1] == "warm"
    nodes, *line_nodes = map(int, words[: len(words) - warm])
    return Depth(text, nodes, line_nodes[0] if line_nodes else 0, warm)


async def label_all(positions: DeepPositions, settings: LabelSettings, depth: Depth) -> list[Label]:
    """Return the positions' labels of that kind."""
    settings = replace(settings, nodes=depth.nodes, multipv_nodes=depth.line_nodes)
    labeller = Labeller(settings, note)
    labels: dict[int, Label] = {}
    for number, game in positions.games():
        await labeller.new_game()
        if depth.warm:
            earlier = Game(game.start_fen())
            for move in game.moves():
                await labeller.label(earlier)
                earlier.push_uci(move)
        labels[number] = await labeller.label(game)
        if len(labels) % 500 == 0:
            note(f"{depth.text}: {len(labels):,} of {len(positions):,} positions")
    await labeller.close()
    return [labels[number] for number in range(len(positions))]


def kept_labels(positions: DeepPositions, settings: LabelSettings, depth: Depth, folder: str) -> list[Label]:
    """Return the labels from a file in the folder, or make and store them."""
    path = Path(folder) / f"{depth.text.replace(':', '-')}.json" if folder else None
    if path is not None and path.exists():
        found = json.loads(path.read_text("utf-8"))
        return [Label(best, cp, tuple((move, score) for move, score in lines)) for best, cp, lines in found]
    labels = asyncio.run(label_all(positions, settings, depth))
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([[each.best, each.cp, each.lines] for each in labels]), "utf-8")
    return labels


def legal_codes(positions: DeepPositions) -> list[list[int]]:
    """Return the codes of each position's legal moves, in the core's order."""
    codes = {number: [move_code(move) for move in game.legal_moves()] for number, game in positions.games()}
    return [codes[number] for number in range(len(positions))]


def targets_of(
    codes: Sequence[Sequence[int]],
    labels: Sequence[Label],
    prior: NDArray[np.float32],
    start: NDArray[np.int64],
    target: TargetSettings,
) -> NDArray[np.float32]:
    """Return the logarithms [m] of the policy targets. prior: [m] logits; prior_exponent 0 ignores them."""
    count, most = len(codes), int(np.diff(start).max())
    lines = np.full((count, max(len(label.lines) for label in labels)), NO_PLACE, np.uint8)
    lines_cp = np.zeros(lines.shape, np.int16)
    best = np.zeros(count, np.uint8)
    log_prior = torch.zeros(count, most)
    legal = torch.zeros(count, most, dtype=torch.bool)
    for number, (own, label) in enumerate(zip(codes, labels, strict=True)):
        best[number] = own.index(label.best)
        for line, (move, cp) in enumerate(label.lines):
            lines[number, line], lines_cp[number, line] = own.index(move), cp
        legal[number, : len(own)] = True
        log_prior[number, : len(own)] = torch.from_numpy(prior[start[number] : start[number + 1]])
    places, scores = listed_scores(best, lines, lines_cp, target)
    listed = torch.zeros(count, most + 1, dtype=torch.bool)
    score = torch.zeros(count, most + 1)
    index = torch.from_numpy(np.where(places == NO_PLACE, most, places).astype(np.int64))
    listed.scatter_(1, index, torch.from_numpy(places != NO_PLACE))
    score.scatter_(1, index, torch.from_numpy(scores))
    policy = improved_policy(
        log_prior, score[:, :most], listed[:, :most], legal, target, target.prior_exponent
    )
    result: NDArray[np.float32] = policy[legal].clamp(min=1e-12).log().numpy()
    return result


def only(
    codes: Sequence[Sequence[int]], moves: Sequence[int], start: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return logits [m] that are 1 for one move of each position and 0 for the others."""
    logits = np.zeros(start[-1], np.float32)
    logits[start[:-1] + [own.index(move) for own, move in zip(codes, moves, strict=True)]] = 1
    return logits


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="+", help="shards of deeply searched positions, or folders of them")
    parser.add_argument("--engine", default="stockfish", help="UCI engine (default: %(default)s)")
    parser.add_argument(
        "--labels", nargs="+", type=depth_of, default=[], help="kinds, each nodes[:line_nodes][:warm]"
    )
    parser.add_argument(
        "--prior", default="wavefront-gpu", help="network of the prior (default: %(default)s)"
    )
    parser.add_argument("--positions", type=int, default=0, help="number of positions (default: all)")
    parser.add_argument(
        "--nodes", type=int, default=150_000, help="nodes of a judgement; 0: none (default: %(default)s)"
    )
    parser.add_argument(
        "--threads", type=int, default=1, help="threads of the network (default: %(default)s)"
    )
    for name in TARGET:
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=float,
            default=getattr(TargetSettings(), name),
            help="of [targets] in training (default: %(default)s)",
        )
    parser.add_argument("--keep", default="", help="folder to keep labels in, and to take them from")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()

    positions = read_positions(shards_of(arguments.data), arguments.positions, 1)
    settings = LabelSettings().parsed({"engine": arguments.engine})
    target = replace(TargetSettings(), **{name: getattr(arguments, name) for name in TARGET})
    judge = (
        judge_of(positions, replace(settings, nodes=arguments.nodes), 1, note) if arguments.nodes else None
    )
    kinds, codes = kinds_of(positions), legal_codes(positions)
    options = Options().parsed({"weights": str(network_file(arguments.prior)), "threads": arguments.threads})
    with Evaluation(options, note) as evaluation:
        rows = positions.encoded(evaluation.network.input_format)
        prior, prior_wdl = evaluation.evaluate(rows)
    reports = [
        network_report(f"prior {arguments.prior}", positions, prior, prior_wdl, rows.start, judge, kinds)
    ]
    for depth in arguments.labels:
        labels = kept_labels(positions, settings, depth, arguments.keep)
        wdl = label_wdl(np.array([label.cp for label in labels], np.int16), positions.ply, TargetSettings())
        policies = {
            "best move": only(codes, [label.best for label in labels], rows.start),
            "first line": only(codes, [label.lines[0][0] for label in labels], rows.start),
            "lines": targets_of(codes, labels, prior, rows.start, replace(target, prior_exponent=0.0)),
            "prior, lines": targets_of(codes, labels, prior, rows.start, target),
        }
        for name, logits in policies.items():
            report = network_report(f"{depth.text} {name}", positions, logits, wdl, rows.start, judge, kinds)
            reports.append(report)
    if arguments.json:
        print(json.dumps([report.data() for report in reports]))
    else:
        show(reports)
    return 0


def show(reports: Sequence[NetworkReport]) -> None:
    for report in reports:
        for part, figures in report.parts.items():
            print(
                f"{report.name:28} {part:18} {figures.positions:5} best {figures.top1:.1%} "
                f"± {figures.top1_error:.1%}, regret {figures.regret:.2%} ± {figures.regret_error:.2%}, "
                f"log-loss {figures.log_loss:.3f}, at best T {figures.log_loss_best:.3f}, "
                f"value {figures.value_rmse:.3f}"
            )


if __name__ == "__main__":
    sys.exit(main())
