# SPDX-License-Identifier: GPL-3.0-or-later
"""A UCI engine that plays the first legal move, and fails in the way and at the move that it is told to.

    python uci_program.py [FAULT [PLY [WORDS]]]

FAULT: illegal, null, crash, hang (until `stop`), deaf (for ever), slow-start (three seconds for a new game),
mute (does not even say `uciok`), garbage (before the move), ponder (expects the first reply; WORDS is the
file for what it heard), guess (ponders and expects the last reply), or none. PLY: the first ply of the game,
from 0, at which it may fail. WORDS: what it says when it crashes.
"""

import sys
import time
from pathlib import Path

import chess


def main() -> None:
    fault = sys.argv[1] if len(sys.argv) > 1 else "none"
    fault_ply = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    board = chess.Board()
    if fault == "mute":
        sys.stdin.read()
    pondering = False
    for line in sys.stdin:
        words = line.split()
        if fault in ("ponder", "guess") and words[0] in ("go", "ponderhit", "stop"):
            command = "go ponder" if words[:2] == ["go", "ponder"] else words[0]
            assert pondering == (command in ("ponderhit", "stop")), "a search at the wrong time"
            pondering = command == "go ponder"
            with Path(sys.argv[3]).open("a") as file:
                file.write(f"{command}\n")
            if command != "go ponder":
                move = first_move(board)
                board.push_uci(move)
                replies = sorted(board.legal_moves, key=chess.Move.uci)
                expected = f" ponder {replies[0 if fault == 'ponder' else -1].uci()}" if replies else ""
                board.pop()
                say(f"bestmove {move}{expected}")
            continue
        if line.startswith("ucinewgame") and fault == "slow-start":
            time.sleep(3.0)
        elif line.startswith("ucinewgame"):
            pass
        elif line.startswith("uci"):
            say("id name scripted\noption name UCI_Chess960 type check default false")
            say("option name Threads type spin default 1 min 1 max 4\nuciok")
        elif line.startswith("isready"):
            say("readyok")
        elif line.startswith("setoption name UCI_Chess960"):
            board.chess960 = words[-1] == "true"
        elif line.startswith("position"):
            set_position(board, words)
        elif line.startswith("go"):
            answer(board, fault if board.ply() >= fault_ply else "none")
        elif line.startswith("stop"):
            say(f"bestmove {first_move(board)}")
        elif line.startswith("quit"):
            return


def say(text: str) -> None:
    print(text, flush=True)


def set_position(board: chess.Board, words: list[str]) -> None:
    moves = words.index("moves") if "moves" in words else len(words)
    board.set_fen(chess.STARTING_FEN if words[1] == "startpos" else " ".join(words[2:moves]))
    for move in words[moves + 1 :]:
        board.push_uci(move)


def first_move(board: chess.Board) -> str:
    return board.uci(min(board.legal_moves, key=chess.Move.uci))


def answer(board: chess.Board, fault: str) -> None:
    if fault == "illegal":
        say("bestmove e1e5")
    elif fault == "null":
        say("bestmove 0000")
    elif fault == "crash":
        print(sys.argv[3] if len(sys.argv) > 3 else "out of chess", file=sys.stderr, flush=True)
        sys.exit(3)
    elif fault == "deaf":
        time.sleep(1000)
    elif fault == "garbage":
        sys.stdout.buffer.write(b"\xff\xfe\n\ninfo\ninfo depth x score cp y nodes\ninfo score mate\n")
        sys.stdout.buffer.write(
            b"bestmoves e2e4\ninfo depth 99999999999999999999 pv e9e9\n" + b"x" * 70000 + b"\n"
        )
        say(f"bestmove {first_move(board)} ponder nonsense")
    elif fault != "hang":
        say(f"info depth 7 seldepth 9 nodes 42 score cp 15 pv {first_move(board)}")
        say(f"bestmove {first_move(board)}")


if __name__ == "__main__":
    main()
