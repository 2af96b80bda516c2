# SPDX-License-Identifier: GPL-3.0-or-later
"""What smart pruning saves of a limit of nodes, and how often another move is played for it.

    python -m benchmarks.strength.smart_pruning GAMES.pgn [--margins 2,0.05,0.02,0.01,0] [--positions 100]
                                       [--nodes 1000] [--backend onnx] [--seed 1] [--json]

One position of each game, with two legal moves or more, is searched with the whole limit and then, with each
SmartPruningMargin, until smart pruning ends the search. The network's answers are remembered, so that all
these searches are the same until one of them ends. The margin counts as it does under a clock. Printed are
the mean share of the limit that is used, searches that were not cut short, and those that end with another
move than the whole search.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.common.command_line import count
from benchmarks.strength.replayed_games import GamesError, PlayedGame, Selection, read_games
from engine.options import Options
from engine.search import stopping
from engine.search.limits import Limits
from engine.session import Session

LAST_PLY = 1000
"""Of a game: no position is too late."""

READY_S = 180.0
"""Longest wait for an evaluator: a GPU's first start measures what is fastest on it."""


@dataclass(slots=True)
class Savings:
    """Of one margin. used: nodes; whole: searches not cut short; other: searches that ended with another
    move."""

    margin: float
    searches: int = 0
    used: int = 0
    whole: int = 0
    other: int = 0


def positions(games: Sequence[PlayedGame], seed: int) -> Iterator[str]:
    """A position of each game after its book, of one side, in FEN, in a random order of the games."""
    generator = random.Random(seed)
    for game in Selection(last=LAST_PLY, seed=seed).of(games):
        chosen = replace(game, plies=(generator.choice(game.plies),))
        yield from (board.fen() for _, board in chosen.boards())


def measure(session: Session, fens: Sequence[str], nodes: int, margins: Sequence[float]) -> list[Savings]:
    """The savings of each margin."""
    given = session.options
    stopping.pruning_margin = lambda options, limits: options.smart_pruning_margin
    found = [Savings(margin) for margin in margins]

    def search(fen: str, **changed: float) -> tuple[str | None, int]:
        session.options = replace(given, **changed)  # type: ignore[arg-type]  # all of them are numbers
        session.new_game()
        session.set_position(fen)
        report = session.search(Limits(nodes=nodes))
        return report.best_move, report.nodes

    for number, fen in enumerate(fens):
        session.clear()
        search(fen, smart_pruning_factor=0.0)
        whole, _ = search(fen, smart_pruning_factor=0.0)
        for savings in found:
            move, used = search(fen, smart_pruning_margin=savings.margin)
            savings.searches += 1
            savings.used += used
            savings.whole += used >= nodes
            savings.other += move != whole
        print(f"{number + 1} of {len(fens)} positions", end="\r", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("games", type=Path, metavar="GAMES.pgn")
    parser.add_argument("--margins", default="2,0.05,0.02,0.01,0", metavar="M,M,…")
    parser.add_argument("--positions", type=count, default=100, metavar="N", help="default 100")
    parser.add_argument("--nodes", type=count, default=1000, metavar="N", help="default 1000")
    parser.add_argument("--backend", default="onnx", help="default onnx")
    parser.add_argument("--seed", type=int, default=1, help="of the choice of positions (default 1)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    try:
        fens = list(positions(read_games(arguments.games), arguments.seed))[: arguments.positions]
    except GamesError as error:
        raise SystemExit(str(error)) from None
    margins = [float(margin) for margin in arguments.margins.split(",")]
    # One small batch at a time: what is in flight is as little a part of the tree as in long searches.
    session = Session(Options(backend=arguments.backend, minibatch_size=8, batches_in_flight=1))
    try:
        session.ready(READY_S)
        found = measure(session, fens, arguments.nodes, margins)
    finally:
        session.close()
    if arguments.json:
        print(json.dumps([asdict(each) for each in found]))
        return
    print(f"{'margin':>6} {'of the limit':>13} {'not cut short':>14} {'another move':>13}   of {len(fens)}")
    for each in found:
        share = each.used / (each.searches * arguments.nodes)
        print(f"{each.margin:6g} {100 * share:11.1f} % {each.whole:14d} {each.other:13d}")


if __name__ == "__main__":
    main()
