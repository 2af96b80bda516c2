# SPDX-License-Identifier: GPL-3.0-or-later
"""One labelled game: start, moves, branches, and result.

Random choices depend only on the seed and the game's number, labels on the engine and its hash. The hash is
empty at the start of a game, and a game is played again if its engine was replaced. So the same settings and
the same engine give the same game.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from time import perf_counter
from typing import Any

from engine._core import Game
from engine.apps.games import Opening
from engine.apps.shards import move_code, uci_move
from training.label.engine import ATTEMPTS, Labeller, SearchFailedError
from training.label.lines import Label
from training.label.settings import LabelSettings
from training.label.starts import draw_start

START_ATTEMPTS = 10
"""Maximum draws of a start; the last one is played even if it is lost for one side."""

WON_PLIES = 6
"""Consecutive plies beyond `won_cp` that decide a game."""

EVEN_CP, EVEN_PLIES, EVEN_FROM_PLY, EVEN_MEN = 5, 10, 60, 6
"""A game is drawn after EVEN_PLIES within EVEN_CP, from EVEN_FROM_PLY on or with at most EVEN_MEN pieces."""

COOLING = ((40, 1 / 3), (16, 2 / 3), (0, 1.0))
"""First ply, and factor of the temperature of moves from then on."""

RESULTS = {"black_won": 0, "white_won": 1, "draw": 2}

Policy = Callable[[Game], Awaitable[dict[str, float]]]
"""Returns a network's policy: probabilities of the legal moves."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """An alternative to the move after labels[ply], and the label of the position after it."""

    ply: int
    move: int
    label: Label


@dataclass(frozen=True, slots=True)
class LabelledGame:
    """A game; labels[i] is the label of the position before moves[prefix + i].

    prefix: leading moves that are only history. single: one position was kept, and moves end after it.
    result: 1 White won, 0 Black won, 2 draw. dropped: why the game was discarded, else empty.
    """

    number: int
    fen: str = ""
    result: int = 3
    reason: str = ""
    moves: list[int] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    branches: list[Alternative] = field(default_factory=list)
    seconds: float = 0.0
    dropped: str = ""
    prefix: int = 0
    single: bool = False

    @property
    def positions(self) -> int:
        """Number of labelled positions, including branches."""
        return len(self.labels) + len(self.branches)

    def data(self) -> dict[str, Any]:
        """Return the game as JSON data, for `of_data`."""
        if self.dropped:
            return {"number": self.number, "dropped": self.dropped}
        return {
            "number": self.number,
            "fen": self.fen,
            "result": self.result,
            "reason": self.reason,
            "moves": self.moves,
            "labels": [_label_data(label) for label in self.labels],
            "branches": [[branch.ply, branch.move, *_label_data(branch.label)] for branch in self.branches],
            "seconds": round(self.seconds, 3),
            **({"prefix": self.prefix, "single": True} if self.single else {}),
        }

    @staticmethod
    def of_data(data: dict[str, Any]) -> LabelledGame:
        """Return the game of `data`. Raises KeyError, TypeError and ValueError for invalid data."""
        if "dropped" in data:
            return LabelledGame(int(data["number"]), dropped=str(data["dropped"]))
        return LabelledGame(
            int(data["number"]),
            str(data["fen"]),
            int(data["result"]),
            str(data["reason"]),
            [int(move) for move in data["moves"]],
            [_label_of(label) for label in data["labels"]],
            [Alternative(int(ply), int(move), _label_of(label)) for ply, move, *label in data["branches"]],
            float(data["seconds"]),
            prefix=int(data.get("prefix", 0)),
            single=bool(data.get("single", False)),
        )


def _label_data(label: Label) -> list[Any]:
    return [label.best, label.cp, [list(line) for line in label.lines]]


def _label_of(data: Sequence[Any]) -> Label:
    best, cp, lines = data
    return Label(int(best), int(cp), tuple((int(move), int(score)) for move, score in lines))


async def play_game(
    number: int,
    settings: LabelSettings,
    openings: Sequence[Opening],
    labeller: Labeller,
    policy: Policy | None = None,
) -> LabelledGame:
    """Play and label a game. policy: of the network that branches are sampled from.

    If all engines fail at a position, or one fails whenever the game is played, the game is returned with
    `dropped` set. Raises NoEngineError if no engine can be started, and errors of `policy`.
    """
    began = perf_counter()
    for _ in range(ATTEMPTS):
        play = _Play(number, settings, openings, labeller, policy)
        try:
            result, reason, start = await play.play()
            if not labeller.undisturbed:
                continue
            if settings.play_nodes:
                await play.keep_one(start)
        except SearchFailedError as error:
            return LabelledGame(number, dropped=str(error))
        return LabelledGame(
            number,
            start,
            result,
            reason,
            play.moves,
            play.labels,
            play.branches,
            perf_counter() - began,
            prefix=play.prefix,
            single=bool(settings.play_nodes),
        )
    return LabelledGame(number, dropped=f"{ATTEMPTS} engines failed in it")


class _Play:
    """A running game."""

    def __init__(
        self,
        number: int,
        settings: LabelSettings,
        openings: Sequence[Opening],
        labeller: Labeller,
        policy: Policy | None,
    ) -> None:
        self._settings, self._openings = settings, openings
        self._labeller, self._policy = labeller, policy
        self._random = Random(f"label {settings.seed} {number}")
        self.moves: list[int] = []
        self.labels: list[Label] = []
        self.branches: list[Alternative] = []
        self.prefix = 0

    async def play(self) -> tuple[int, str, str]:
        """Return result, reason and the FEN of the start."""
        game, label = await self._start()
        start = game.fen()
        ends = _Ends(self._settings, self._random.random() >= self._settings.played_on)
        while True:
            move = self._move(game, label)
            self.labels.append(label)
            self.moves.append(move_code(move))
            if not self._settings.play_nodes:
                await self._branch(game, label, move)
            ended = ends.after(game, label)
            game.push_uci(move)
            name, reason = game.result()
            if name != "undecided":
                return RESULTS[name], reason, start
            if ended is None and len(self.moves) >= self._settings.max_plies:
                ended = 2, "length"
            if ended is not None:
                return *ended, start
            label = await self._label(game)

    async def keep_one(self, start: str) -> None:
        """Label one position of the game with an empty hash, and a branch there; discard the rest.

        Drawn from the positions with a choice of moves, if there are any."""
        plies = [ply for ply, label in enumerate(self.labels) if len(label.lines) > 1]
        self.prefix = self._random.choice(plies or range(len(self.labels)))
        game = Game(start)
        for code in self.moves[: self.prefix]:
            game.push_uci(uci_move(code))
        await self._labeller.new_game()
        label = await self._labeller.label(game)
        del self.moves[self.prefix + 1 :]
        self.labels = [label]
        await self._branch(game, label, uci_move(self.moves[-1]))

    async def _label(self, game: Game) -> Label:
        """Label a position to choose a move."""
        settings = self._settings
        return await self._labeller.label(game, settings.playing if settings.play_nodes else None)

    async def _start(self) -> tuple[Game, Label]:
        """Return the first position with its label."""
        for attempt in range(START_ATTEMPTS):
            start = draw_start(self._settings, self._openings, self._random)
            await self._labeller.new_game()
            label = await self._label(start.game)
            level = abs(label.cp) <= self._settings.start_cp
            if level or not start.must_be_level or attempt == START_ATTEMPTS - 1:
                break
        return start.game, label

    def _move(self, game: Game, label: Label) -> str:
        """Return the move to play, in UCI notation.

        With an exact label it is the best one, so that the plies to the end are those of good play."""
        settings, random = self._settings, self._random
        names = {move_code(move): move for move in game.legal_moves()}
        if label.exact:
            return names[label.best]
        chance = random.random()
        if chance < settings.blunder_share:
            return random.choice(list(names.values()))
        if chance < settings.blunder_share + settings.best_share:
            return names[label.best]
        ply = len(self.moves)
        temperature = settings.temperature * next(factor for first, factor in COOLING if ply >= first)
        expected = [expected_score(cp) for _, cp in label.lines]
        weights = [math.exp((score - max(expected)) / temperature) for score in expected]
        return names[random.choices([move for move, _ in label.lines], weights)[0]]

    async def _branch(self, game: Game, label: Label, played: str) -> None:
        """With the configured probability, label the position after another move."""
        settings, random = self._settings, self._random
        if random.random() >= settings.branches:
            return
        taken = {move_code(played), label.best}
        others = [move for move in game.legal_moves() if move_code(move) not in taken]
        chance, choice = random.random(), random.random()
        if not others:
            return
        listed = [move for move in others if move_code(move) in {code for code, _ in label.lines}]
        if chance < settings.branch_lines and listed:
            others = listed
        elif chance < settings.branch_lines + settings.branch_policy and self._policy is not None:
            policy = await self._policy(game)
            weights = [policy.get(move, 0.0) ** (1 / settings.branch_temperature) for move in others]
            if sum(weights) > 0:
                others = random.choices(others, weights)
        move = others[int(choice * len(others))]
        beside = game.copy()
        beside.push_uci(move)
        if beside.result()[0] == "undecided":
            if settings.play_nodes:
                await self._labeller.new_game()
            found = await self._labeller.label(beside)
            self.branches.append(Alternative(len(self.labels) - 1, move_code(move), found))


class _Ends:
    """Adjudicates games whose result is clear."""

    def __init__(self, settings: LabelSettings, adjudicates: bool) -> None:
        self._settings = settings
        self._adjudicates = adjudicates
        self._won = self._even = 0

    def after(self, game: Game, label: Label) -> tuple[int, str] | None:
        """Record a position's score; return result and reason if that ends the game after its move. Wins by
        tablebases are played to mate."""
        cp = label.cp
        white_cp = cp if game.turn == "white" else -cp
        sign = 1 if white_cp > 0 else -1
        beyond = abs(cp) >= self._settings.won_cp
        self._won = (self._won + sign if self._won * sign >= 0 else sign) if beyond else 0
        even = abs(cp) <= EVEN_CP and (game.ply >= EVEN_FROM_PLY or game.men <= EVEN_MEN)
        self._even = self._even + 1 if even else 0
        if not self._adjudicates:
            return None
        if abs(self._won) >= WON_PLIES and not label.exact:
            return (1 if self._won > 0 else 0), "score"
        return (2, "equal scores") if self._even >= EVEN_PLIES else None


def expected_score(cp: int) -> float:
    """Return the expected score, 0 to 1, of a score in centipawns."""
    return 1 / (1 + math.exp(-max(-3000, min(3000, cp)) / 100))
