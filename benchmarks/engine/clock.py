# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes a millisecond of moves under a clock, as in a game: the tree is kept from move to move.

    python -m benchmarks.engine.clock [--seconds S] [--engine COMMAND] [--set NAME=VALUE]... [--json]

The engine plays White's moves of one game with its own clock; the moves themselves are given. Searches by a
fixed time do not show what a move loses at its start and end, or how batches grow with a kept tree. --engine
takes any UCI program.
"""

from __future__ import annotations

import argparse
import re
import shlex
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.common.command_line import positive
from benchmarks.common.figures import Figure, print_figures
from benchmarks.common.installation import CHECKOUT, Installation
from benchmarks.common.processes import CommandError, started

FEN = "rnbqkb1r/5ppp/2p1pn2/pP6/3p4/P1N2NP1/1P1PPPBP/R1BQK2R w KQkq - 0 8"
_GAME = """
c3b1 c8b7 b5c6 b8c6 d2d3 f8e7 b1d2 a8a7 d2c4 e8g8 e1g1 h7h6 c1d2 a5a4 a1b1 f6d5 d1c2 b7a8 f1c1 e7f6 h2h3
d8d7 c2d1 f8b8 h3h4 d7d8 f3h2 b8b5 h2g4 f6e7 b2b3 f7f5 g4h2 e7f6 b3a4 b5b1 c1b1 d5c3 d2c3 d4c3 h2f3 c6a5
c4a5 d8a5 f3e1 a8g2 g1g2 g8f7 b1b4 a5d5 g2g1 g7g5 h4h5 d5a2 e1c2 f5f4 g3g4 f6e7 d1b1 a2d5 b4b5 d5c6 b1b3
e7f6 f2f3 a7d7 g1g2 f6d8 d3d4 d7d5 b5b7 d8e7 a4a5 c6a6 g2f2 a6a5 b3c4 a5a8 b7c7 a8d8
"""
MOVES = _GAME.split()

SHORT_MS = 20.0
"""Shorter moves, which are forced, do not count."""


@dataclass(frozen=True, slots=True)
class Played:
    """The moves of a game. nodes: of their roots, with kept visits. milliseconds: from `go` to `bestmove`.
    wait_ms: median time of a move before its first batch and after its search's end; 0 if unknown."""

    moves: int
    nodes: int
    milliseconds: float
    wait_ms: float

    @property
    def nodes_per_ms(self) -> float:
        return self.nodes / self.milliseconds


class _Engine:
    def __init__(self, process: subprocess.Popen[str], command: Sequence[str]) -> None:
        self._process = process
        self._command = command

    def ask(self, lines: str, end: str) -> list[str]:
        """Send lines, and return the answers up to the one that begins with `end`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(lines + "\n")
        self._process.stdin.flush()
        answers = []
        for answer in self._process.stdout:
            answers.append(answer)
            if answer.startswith(end):
                return answers
        raise CommandError(f"{shlex.join(self._command)} ended after {lines!r}")


def play(
    *, installation: Installation = CHECKOUT, seconds: float = 3.0, options: Sequence[str] = ()
) -> Played:
    """Play the game with a clock of some seconds and 1 % of it a move. options: NAME=VALUE of UCI options.

    Raises CommandError, also if no move took long enough.
    """
    command = [*installation.engine]
    with started(
        command,
        folder=installation.folder,
        environment=installation.environment(),
        stderr=subprocess.DEVNULL,
    ) as process:
        engine = _Engine(process, command)
        engine.ask("uci", "uciok")
        chosen = [each.partition("=") for each in options]
        sets = [f"setoption name {name} value {value}\n" for name, _, value in chosen]
        engine.ask(f"{''.join(sets)}debug on\nisready", "readyok")
        engine.ask("position startpos\ngo movetime 2000", "bestmove")  # The device is warm now.
        engine.ask("ucinewgame\nisready", "readyok")
        left_ms, plus_ms = 1000 * seconds, round(10 * seconds)
        rows, waits = [], []
        for ply in range(0, len(MOVES), 2):
            clock = max(1, round(left_ms))
            began = time.perf_counter()
            answers = engine.ask(
                f"position fen {FEN} moves {' '.join(MOVES[:ply])}\n"
                f"go wtime {clock} btime {clock} winc {plus_ms} binc {plus_ms}",
                "bestmove",
            )
            took_ms = 1000 * (time.perf_counter() - began)
            left_ms += plus_ms - took_ms
            nodes = re.findall(r"^info .*\bnodes (\d+)", "".join(answers), re.MULTILINE)
            if nodes and took_ms > SHORT_MS:
                rows.append((int(nodes[-1]), took_ms))
                if wait := re.search(
                    r"first batch after ([\d.]+) ms ended ([\d.]+) ms ago", "".join(answers)
                ):
                    waits.append(float(wait[1]) + float(wait[2]))
    if not rows:
        raise CommandError(f"{shlex.join(command)}: no move took {SHORT_MS:g} ms")
    return Played(
        len(rows),
        sum(nodes for nodes, _ in rows),
        sum(took for _, took in rows),
        statistics.median(waits) if waits else 0.0,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=positive, default=3.0, help="of the clock (default: 3)")
    parser.add_argument(
        "--engine", default="", metavar="COMMAND", help="a UCI program (default: this checkout's)"
    )
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="UCI option")
    parser.add_argument("--json", action="store_true", help="print JSON")
    asked = parser.parse_args()
    measured = replace(CHECKOUT, engine=shlex.split(asked.engine)) if asked.engine else CHECKOUT
    try:
        played = play(installation=measured, seconds=asked.seconds, options=asked.set)
    except CommandError as error:
        raise SystemExit(str(error)) from None
    print_figures(
        [
            Figure("nodes/ms, on an H200", played.nodes_per_ms, 340, peer="lc0 247"),
            Figure("ms of a move without search", played.wait_ms, 2, at_least=False),
        ],
        as_json=asked.json,
    )


if __name__ == "__main__":
    main()
