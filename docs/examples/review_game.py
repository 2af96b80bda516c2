# SPDX-License-Identifier: GPL-3.0-or-later
"""Reviews a game with one query: what the side to move could expect before each move, and what the move cost.

python docs/examples/review_game.py GAME.pgn [--nodes N] [--engine COMMAND]
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chess.pgn

MISTAKE = 0.2
"""Lost of the expected result, which is 1 for a win and -1 for a loss."""


def analysed(engine: list[str], query: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The answers to a query, in the order in which they come."""
    with subprocess.Popen(engine, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(query) + "\n")
        process.stdin.close()  # What has been asked for is finished all the same.
        for line in process.stdout:
            answer = json.loads(line)
            if "error" in answer:
                raise SystemExit(f"{answer.get('field', 'engine')}: {answer['error']}")
            yield answer


def expected(answer: dict[str, Any]) -> float:
    """The expected result for White, by the best move found or by the rules."""
    if not answer["moves"]:
        return {"white_won": 1.0, "black_won": -1.0, "draw": 0.0}[answer["game_over"]["result"]]
    return float(answer["moves"][0]["q"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("game", type=Path, help="PGN file; its first game is reviewed")
    parser.add_argument("--nodes", type=int, default=400, help="visits of each position (default 400)")
    parser.add_argument("--engine", default="wavefront analysis", help="(default %(default)r)")
    arguments = parser.parse_args()

    with arguments.game.open() as file:
        game = chess.pgn.read_game(file)
    if game is None:
        raise SystemExit(f"{arguments.game} holds no game")
    if game.errors:
        raise SystemExit(f"{arguments.game}: {game.errors[0]}")
    board = game.board()
    moves = list(game.mainline_moves())
    query = {
        "id": "review",
        "fen": board.fen(),
        "moves": [move.uci() for move in moves],
        "analyze_turns": list(range(len(moves) + 1)),
        "nodes": arguments.nodes,
        "point_of_view": "white",
    }
    found = {answer["turn"]: answer for answer in analysed(shlex.split(arguments.engine), query)}

    for turn, move in enumerate(moves):
        before, after = found[turn], found[turn + 1]
        loss = expected(before) - expected(after)
        loss = loss if board.turn == chess.WHITE else -loss
        number = f"{board.fullmove_number}." if board.turn == chess.WHITE else f"{board.fullmove_number}…"
        text = f"{number:>5} {board.san(move):8} {expected(before):+.2f}"
        if loss > MISTAKE:
            better = board.parse_uci(before["moves"][0]["move"])
            text += f"  loses {loss:.2f}; better is {board.san(better)}"
        print(text)
        board.push(move)


if __name__ == "__main__":
    main()
