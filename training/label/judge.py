# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluates single positions with several UCI engines concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from engine._core import Game
from engine.workers.executor import play_together
from training.label.engine import Labeller, PositionError
from training.label.settings import LabelSettings


def judge(
    games: Sequence[Game], settings: LabelSettings, workers: int, log: Callable[[str], None]
) -> list[int | None]:
    """Return centipawns of each game's current position for the side to move, or None on failure.
    Each search starts with an empty hash. Raises EngineError if none can be started."""
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
                except PositionError as error:
                    log(str(error))
        finally:
            await labeller.kill()

    await play_together(work() for _ in range(min(workers, len(games))))
    return scores
