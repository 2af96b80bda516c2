# SPDX-License-Identifier: GPL-3.0-or-later
"""Positions for training from games of the network's policy alone, one evaluation a move.

What a network memorises are games, so each gives few positions: one of a row of plies, by chance, and more
often where a likely move changed the value. The games of a block are played in step, so that their positions
share requests. Searches label the positions afterwards (`annotate --nodes`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine._core import Game, encode
from engine.apps.campaign import Campaign
from engine.apps.games import Opening, OpeningSettings, read_openings
from engine.apps.shards import (
    NO_SHARE,
    SUFFIX,
    UNKNOWN_PLIES,
    Columns,
    move_code,
    read_header,
    shard_bytes,
    shard_of,
    uci_move,
    wdl_bytes,
)
from engine.evaluation.errors import NoEvaluatorError
from engine.options import Options
from engine.search.pool import SearchPool
from engine.workers import MAX_WORKERS
from engine.workers.executor import LocalExecutor, Log, WorkerContext
from protocol import POSITION_DTYPE
from protocol.common.files import write_atomically
from protocol.common.folders import expanded
from protocol.common.printing import failing_as
from protocol.common.processors import usable_processors
from protocol.common.settings.sources import read_document
from protocol.common.settings.spec import SettingsGroup, setting
from training.data.packed import pack_positions
from training.errors import TrainingError
from training.evaluation import EncodedRows, Evaluation

GAMES_A_BLOCK = 2048
HISTORY_PLIES = 7
"""Plies before a position that networks see."""

OPENING_PLIES = (6, 16)
"""Fewest and most plies of an opening: half a line of the book and random moves, or random moves alone."""

MOST_OPENINGS = 2000
UNEVEN = 0.6
"""Games whose opening has a larger W − L end at once."""

DECIDED, DECIDED_PLIES = 0.97, 4
"""A side resigns after this number of plies in which its chance to lose was at least that."""

PLAYED_ON = 0.1
"""Share of the games that nobody resigns, for endings."""

MOST_PLIES = 300
LEAST_WEIGHT = 0.02
"""Weight of a position without surprise; the surprise is at most 2."""

HELD_OUT = 64
"""Each game whose number is a multiple of this is held out, in a folder of its own."""


@dataclass(frozen=True, slots=True)
class HarvestSettings(SettingsGroup):
    """Settings of a harvest."""

    games: int = setting(
        100_000,
        f"number of games, in blocks of {GAMES_A_BLOCK}; a later run plays missing blocks",
        low=1,
        high=10**9,
    )
    seed: int = setting(1, "random seed of openings, moves and the choice of positions", high=2**31)
    one_of: int = setting(8, "plies of which one position is kept", low=1, high=MOST_PLIES)
    temperature: float = setting(0.7, "temperature of the policy that plays", low=0.01, high=100)
    workers: int = setting(
        0, "processes that play; 0: three quarters of the processors", high=MAX_WORKERS, zero="auto"
    )


@dataclass(frozen=True, slots=True)
class Harvest:
    """What to play. addresses: of evaluators, which take turns by blocks. network: its name there; empty:
    their first one. digest: SHA-256 of its file."""

    addresses: tuple[str, ...]
    output: str
    settings: HarvestSettings = HarvestSettings()
    network: str = ""
    digest: str = ""
    games_a_block: int = GAMES_A_BLOCK

    @property
    def blocks(self) -> int:
        return -(-self.settings.games // self.games_a_block)

    @property
    def manifest(self) -> Path:
        return expanded(self.output) / "manifest.toml"

    def recipe(self) -> dict[str, object]:
        """Return what the games depend on. A folder holds games of one recipe."""
        names = ("seed", "one_of", "temperature")
        return {"network": self.digest} | {name: getattr(self.settings, name) for name in names}

    def files(self, block: int) -> tuple[Path, Path]:
        """Return the shards of a block: to train on, and held out."""
        folder, name = expanded(self.output), f"games_{block:06d}{SUFFIX}"
        return folder / "train" / name, folder / "heldout" / name


@dataclass(frozen=True, slots=True)
class Block:
    """Shards of the positions of played games, each as a game of one position with its history; empty without
    positions. taken: to train on, `positions` of them."""

    number: int
    taken: bytes
    held_out: bytes
    positions: int


@dataclass(slots=True)
class _PolicyGame:
    """A game in play. moves: codes of all, with those of the opening. best, share, wdl: after the opening,
    the policy's best move, the share of the played one, and the network's WDL of the position before it.
    ended: how, or empty."""

    game: Game
    start: str
    moves: list[int]
    resigns: bool
    best: list[int] = field(default_factory=list)
    share: list[float] = field(default_factory=list)
    wdl: list[Any] = field(default_factory=list)
    decided: int = 0
    ended: str = ""

    def play(self, move: str) -> None:
        self.game.push_uci(move)
        self.moves.append(move_code(move))
        self.ended = self.game.result()[0]
        if self.ended == "undecided":
            self.ended = "draw" if len(self.moves) >= MOST_PLIES else ""

    def sees(self, wdl: NDArray[np.float32]) -> bool:
        """Take the network's WDL of the position. Return False if that ends the game."""
        if not self.wdl and abs(wdl[0] - wdl[2]) > UNEVEN:
            self.ended = "uneven"
            return False
        self.wdl.append(wdl)
        self.decided = self.decided + 1 if max(wdl[0], wdl[2]) >= DECIDED else 0
        if self.resigns and self.decided >= DECIDED_PLIES:
            side = self.game.turn if wdl[0] > wdl[2] else ("black" if self.game.turn == "white" else "white")
            self.ended = f"{side}_won"
            return False
        return True


def played(number: int, harvest: Harvest, openings: Sequence[Opening], evaluation: Evaluation) -> Block:
    """Play a block of games. Raises NoEvaluatorError and TrainingError."""
    settings = harvest.settings
    random = Random(f"harvest {settings.seed} {number}")
    chance = np.random.default_rng(random.getrandbits(64))
    lines = [_opened(random, openings) for _ in range(harvest.games_a_block)]
    network = evaluation.network
    going = [line for line in lines if not line.ended]
    while going:
        positions, _, offsets, moves = encode([line.game for line in going], network.input_format, "fen_only")
        packed = pack_positions(positions.view(POSITION_DTYPE).reshape(-1))
        logits, wdl = evaluation.evaluate(EncodedRows(packed, offsets.astype(np.int64), moves))
        start = offsets[:-1].astype(np.int64)
        best, share = _largest(logits, start), _shares(logits, start)
        noise = chance.gumbel(size=len(logits))
        chosen = _largest(logits / settings.temperature + noise, start)
        for row, line in enumerate(going):
            if line.sees(wdl[row]):
                legal = line.game.legal_moves()
                line.best.append(move_code(legal[best[row] - start[row]]))
                line.share.append(float(share[chosen[row]]))
                line.play(legal[chosen[row] - start[row]])
        going = [line for line in going if not line.ended]
    taken: list[Columns] = []
    held_out: list[Columns] = []
    for index, line in enumerate(lines):
        game = number * harvest.games_a_block + index
        into = taken if game % HELD_OUT else held_out
        into += [_sample(line, ply, game) for ply in _chosen(line, settings.one_of, random)]
    source = f"games of the policy of {network.content_hash or network.name}, seed {settings.seed}"
    files = [shard_bytes(shard_of(each, source)) if each else b"" for each in (taken, held_out)]
    return Block(number, files[0], files[1], len(taken))


def _opened(random: Random, openings: Sequence[Opening]) -> _PolicyGame:
    plies, opening = random.randint(*OPENING_PLIES), random.choice(openings)
    fen, book = (opening.fen, opening.moves[: plies // 2]) if random.random() < 0.5 else (None, ())
    game = Game(fen, True)  # Castling is king takes rook, as in shards.
    line = _PolicyGame(game, game.fen(), [], resigns=random.random() >= PLAYED_ON)
    for move in book:
        game.push_uci(move)
    line.moves = [move_code(move) for move in game.moves()]
    while len(line.moves) < plies and not line.ended:
        line.play(random.choice(game.legal_moves()))
    return line


def _chosen(line: _PolicyGame, one_of: int, random: Random) -> Iterator[int]:
    """Yield plies of a game, one of each row of `one_of` after the opening."""
    first, count = len(line.moves) - len(line.best), len(line.best)
    q = [float(wdl[0] - wdl[2]) for wdl in line.wdl]
    weights = [
        LEAST_WEIGHT + (line.share[k] * abs(q[k] + q[k + 1]) if k + 1 < len(q) else 0.0) for k in range(count)
    ]
    for k in range(0, count - one_of + 1, one_of):
        yield first + random.choices(range(k, k + one_of), weights[k : k + one_of])[0]


def _sample(line: _PolicyGame, ply: int, number: int) -> Columns:
    """Return the columns of the position before a ply, with its history."""
    begin, index = max(0, ply - HISTORY_PLIES), ply - (len(line.moves) - len(line.best))
    start = Game(line.start, True)
    for code in line.moves[:begin]:
        start.push_uci(uci_move(code))
    fen = start.fen()
    for code in line.moves[begin:ply]:
        start.push_uci(uci_move(code))
    legal = start.legal_moves()
    policy = np.full(len(legal), NO_SHARE, np.uint8)
    policy[legal.index(uci_move(line.best[index]))] = 0
    result = {"white_won": 1, "black_won": 0, "draw": 2}[line.ended]
    won = {1: (255, 0), 0: (0, 255), 2: (0, 0)}[result]
    known = line.game.result()[0] != "undecided"  # Neither resigned nor cut.
    return {
        "fens": np.frombuffer(fen.encode(), np.uint8),
        "plies": np.array([ply - begin + 1], np.uint16),
        "prefix": np.array([ply - begin], np.uint16),
        "results": np.array([result], np.uint8),
        "chess960": np.ones(1, np.uint8),
        "moves": np.array(line.moves[begin : ply + 1], np.uint16),
        "number": np.array([number], np.uint32),
        "best": np.array([line.best[index]], np.uint16),
        "policy": policy,
        "wdl": wdl_bytes(line.wdl[index][None]),
        "result": np.array([won], np.uint8).T,
        "plies_left": np.array([len(line.moves) - ply if known else UNKNOWN_PLIES], np.uint16),
    }


def _largest(values: NDArray[Any], start: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the index of the largest value of each row; row i begins at start[i]."""
    rows = np.repeat(np.arange(len(start)), np.diff(start, append=len(values)))
    hits = np.flatnonzero(values == np.maximum.reduceat(values, start)[rows])
    return hits[np.unique(rows[hits], return_index=True)[1]]


def _shares(logits: NDArray[np.float32], start: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the softmax of each row."""
    counts = np.diff(start, append=len(logits))
    shares = np.exp(logits - np.repeat(np.maximum.reduceat(logits, start), counts))
    result: NDArray[np.float32] = shares / np.repeat(np.add.reduceat(shares, start), counts)
    return result


# -- the campaign ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HarvestJob:
    """Blocks of games: a GameJob, whose processes connect to the harvest's evaluators by themselves."""

    harvest: Harvest
    openings: tuple[Opening, ...]
    engines: tuple[Options, ...] = ()

    def games_at_once(self, pool: SearchPool | None) -> int:
        return self.harvest.blocks

    def executor(self, log: Log, context: WorkerContext, pool: SearchPool | None = None) -> HarvestExecutor:
        return HarvestExecutor(self, log, context.processes)


class HarvestExecutor(LocalExecutor[Block, HarvestJob]):
    """Plays blocks in this process, two at a time: one thinks while the other one waits."""

    failures = (NoEvaluatorError, TrainingError)

    def __init__(self, job: HarvestJob, log: Log, processes: int) -> None:
        super().__init__(job, None)
        self._log, self._at_once = log, 2 * processes

    async def start(self) -> int:
        return self._at_once

    async def play_game(self, number: int) -> Block:
        return await asyncio.to_thread(self._play, number)

    def _play(self, number: int) -> Block:
        harvest = self.job.harvest
        address = harvest.addresses[number % len(harvest.addresses)]
        with Evaluation(Options(evaluator=address, weights=harvest.network), self._log) as evaluation:
            return played(number, harvest, self.job.openings, evaluation)


class HarvestCampaign(Campaign[Block, Block]):
    """Writes the shards of each block. A later run plays the missing blocks. positions: to
    train on, of this run. step: called with the number of a block's games."""

    def __init__(self, harvest: Harvest, step: Callable[[int], None]) -> None:
        workers = harvest.settings.workers or max(1, usable_processors() * 3 // 4)
        super().__init__(range(harvest.blocks), workers=workers)
        self._harvest, self._step = harvest, step
        self.positions = 0

    async def prepare(self, note: Log) -> None:
        openings = await asyncio.to_thread(
            read_openings, OpeningSettings(), MOST_OPENINGS, seed=self._harvest.settings.seed, report=note
        )
        self.job = HarvestJob(self._harvest, tuple(openings))

    def open(self, **_: object) -> set[int]:
        """Return the blocks that are there. Raises TrainingError, also for games of another recipe."""
        manifest, recipe = self._harvest.manifest, self._harvest.recipe()
        with failing_as(TrainingError, f"cannot write in {self._harvest.output}"):
            for file in self._harvest.files(0):
                file.parent.mkdir(parents=True, exist_ok=True)
            if not manifest.exists():
                write_atomically(manifest, _toml(recipe))
        found = read_document(manifest)
        changed = [
            f"{name}: {found.get(name)} -> {recipe[name]}"
            for name in recipe
            if found.get(name) != recipe[name]
        ]
        if changed:
            raise TrainingError(
                f"{self._harvest.output} holds other games ({'; '.join(changed)}); use another folder"
            )
        there = {block for block in self.numbers if self._harvest.files(block)[0].exists()}
        self._step(len(there) * self._harvest.games_a_block)
        return there

    def write(self, game: Block) -> Block:
        train, held_out = self._harvest.files(game.number)
        with failing_as(TrainingError, f"cannot write in {self._harvest.output}"):
            if game.held_out:
                write_atomically(held_out, game.held_out, durable=True)
            if game.taken:
                write_atomically(train, game.taken, durable=True)  # Last: the block is there now.
        return game

    def describe(self) -> None:
        """Write what made the shards and what they hold. Raises TrainingError."""
        made = self._harvest.recipe() | {"games": self._harvest.settings.games}
        for kind in ("train", "heldout"):
            files = sorted((self._harvest.manifest.parent / kind).glob(f"*{SUFFIX}"))
            made[f"{kind}_positions"] = sum(int(read_header(file)["positions"]) for file in files)
            digest = hashlib.sha256()
            for file in files:
                digest.update(file.read_bytes())
            made[f"{kind}_sha256"] = digest.hexdigest()
        with failing_as(TrainingError, f"cannot write {self._harvest.manifest}"):
            write_atomically(self._harvest.manifest, _toml(made))

    def count(self, entry: Block) -> None:
        self.positions += entry.positions
        self._step(self._harvest.games_a_block)


def _toml(values: Mapping[str, object]) -> bytes:
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items()).encode()
