# SPDX-License-Identifier: GPL-3.0-or-later
"""An engine's judgement of moves that the labels do not list."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from engine._core import Game
from engine.workers.executor import play_together
from training.config import TargetSettings
from training.label.engine import Labeller, SearchFailedError
from training.label.settings import LabelSettings
from training.report.figures import Judge
from training.report.positions import DeepPositions, expected
from training.targets import label_wdl


def judge(
    games: Sequence[Game], settings: LabelSettings, workers: int, log: Callable[[str], None]
) -> list[int | None]:
    """Return centipawns of each game's current position for the side to move, or None on failure.
    Each search starts with an empty hash. Raises NoEngineError if none can be started."""
    return asyncio.run(_judge(games, replace(settings, multipv=1), workers, log))


async def _judge(
    games: Sequence[Game], settings: LabelSettings, workers: int, log: Callable[[str], None]
) -> list[int | None]:
    scores: list[int | None] = [None] * len(games)
    numbers = iter(range(len(games)))

    async def work() -> None:
        labeller = Labeller(settings, log)
        try:
            for number in numbers:
                await labeller.new_game()
                try:
                    scores[number] = (await labeller.label(games[number])).cp
                except SearchFailedError as error:
                    log(str(error))
        finally:
            await labeller.kill()

    await play_together(work() for _ in range(min(workers, len(games))))
    return scores


def judge_of(
    positions: DeepPositions, settings: LabelSettings, workers: int, note: Callable[[str], None]
) -> Judge:
    """Return a function that has the engine search the positions after given moves, each once."""
    known: dict[tuple[int, int], float] = {}

    def judged(moves: dict[int, int]) -> dict[int, float]:
        new = {number: place for number, place in moves.items() if (number, place) not in known}
        note(f"{len(new)} moves that are not listed are judged")
        games = positions.games_after(new)
        ended = {"draw": 0.5}
        searched = {}
        for number, game in games.items():
            result = game.result()[0]
            if result == "undecided":
                searched[number] = game
            else:  # a move that ends the game wins it, unless it draws
                known[number, new[number]] = ended.get(result, 1.0)
        scores = judge(list(searched.values()), settings, workers, note)
        for number, cp in zip(searched, scores, strict=True):
            if cp is not None:
                ply = np.array([positions.ply[number] + 1])
                wdl = label_wdl(np.array([cp], np.int16), ply, TargetSettings())
                known[number, new[number]] = 1.0 - float(expected(wdl)[0])
        return {number: known[number, place] for number, place in moves.items() if (number, place) in known}

    return judged
