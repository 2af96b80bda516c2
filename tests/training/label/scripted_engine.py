# SPDX-License-Identifier: GPL-3.0-or-later
"""A UCI engine for tests: scores follow the rule of `tests.training.labels`; it fails where it is told to.

    python -m tests.training.label.scripted_engine [die|hang|illegal|silent|remember MARKER]

With MARKER it fails once, at its fifth search, and leaves a file of that name; with "always" it fails after
six moves of every game, with "often" of those whose start FEN has an even length. "remember" dies like "die",
and its scores also depend on the searches since `ucinewgame`, as those of an engine with a hash do.
"""

import os
import sys
import time
from pathlib import Path

from engine._core import Game
from tests.training.labels import move_value

FAILS_AT = 5


class Engine:
    def __init__(self, failure: str, marker: str) -> None:
        self.failure, self.marker = failure, marker
        self.game = Game()
        self.multipv = 1
        self.searches = 0
        self.remembered = 0

    def fails(self) -> bool:
        """Whether to fail at the present search."""
        if not self.failure:
            return False
        if self.marker in ("always", "often"):
            even = len(self.game.start_fen()) % 2 == 0
            return len(self.game.moves()) == 6 and (even or self.marker == "always")
        if self.searches != FAILS_AT or Path(self.marker).exists():
            return False
        Path(self.marker).touch()
        return True

    def go(self) -> None:
        self.searches += 1
        if self.fails():
            if self.failure in ("die", "remember"):
                os._exit(3)
            if self.failure == "hang":
                while True:
                    time.sleep(60)
            print(
                "bestmove a1a1"
                if self.failure == "silent"
                else "info depth 9 score cp 5 pv a1a1\nbestmove a1a1"
            )
            return
        if self.failure == "remember":
            self.remembered += 1
        ranked = sorted(self.game.legal_moves(), key=lambda move: (-move_value(move), move))
        for depth in (1, 2):
            for number, move in enumerate(ranked[: self.multipv], 1):
                score = move_value(move) + (7 if depth == 1 else 0) + self.remembered
                print(f"info depth {depth} multipv {number} score cp {score} nodes 9 pv {move}")
        if self.multipv > 1:  # An iteration that is cut short.
            print(f"info depth 3 multipv 1 score cp 999 nodes 9 pv {ranked[-1]}")
        print(f"info depth 3 multipv 1 score cp 998 upperbound nodes 9 pv {ranked[-1]}")
        print(f"bestmove {ranked[0]}")

    def run(self) -> None:
        for line in sys.stdin:
            words = line.split()
            if words[:1] == ["uci"]:
                print("id name scripted\noption name MultiPV type spin default 1 min 1 max 500\nuciok")
            elif words[:1] == ["isready"]:
                print("readyok")
            elif words[:1] == ["ucinewgame"]:
                self.remembered = 0
            elif words[:3] == ["setoption", "name", "MultiPV"]:
                self.multipv = int(words[-1])
            elif words[:1] == ["position"]:
                fen, _, moves = line.partition(" moves ")
                self.game = Game(fen.removeprefix("position fen ").strip())
                for move in moves.split():
                    self.game.push_uci(move)
            elif words[:1] == ["go"]:
                self.go()
            elif words[:1] == ["quit"]:
                return
            sys.stdout.flush()


if __name__ == "__main__":
    Engine(*(sys.argv[1:] or ["", ""])).run()
