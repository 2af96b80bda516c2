# SPDX-License-Identifier: GPL-3.0-or-later
"""Twenty bots with clocks of their own share one service, as games of lichess-bot do."""

import asyncio
import random
from pathlib import Path

import psutil
import pytest

from benchmarks.service.bots import Record, TimeControl, tournament
from benchmarks.service.service_scale import service

pytestmark = pytest.mark.integration

BASES = (10, 11, 12, 13, 15, 17, 20, 25, 30, 40, 50, 60, 90, 120, 180, 240, 300, 400, 480, 600)
CONTROLS = [TimeControl(base, number % 3) for number, base in enumerate(BASES)]
"""From bullet to rapid, some with an increment."""

SECONDS = 12.0
"""Play; bots with long clocks may not have ended their first move then."""


def private_evaluators() -> list[int]:
    """The evaluators that engines of this process have started."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "--embedded" in process.cmdline():
                found.append(process.pid)
        except psutil.Error:  # It has just ended.
            continue
    return found


def controls() -> list[TimeControl]:
    """Return the clocks in a mixed order."""
    return random.Random(1).sample(CONTROLS, len(CONTROLS))


async def play(address: str) -> tuple[list[Record], list[int]]:
    """Let the bots play; also return the private evaluators that there were meanwhile."""
    playing = asyncio.create_task(tournament(address, controls(), SECONDS))
    seen: list[int] = []
    while not playing.done():
        await asyncio.sleep(2.0)
        seen += private_evaluators()
    return playing.result(), seen


def test_twenty_bots_share_a_service_and_lose_no_game_on_time(tmp_path: Path) -> None:
    """python-chess is the referee and raises for an illegal move."""
    with service(["random"], tmp_path) as address:
        records, private = asyncio.run(play(address))
    assert not private
    assert not sum(record.forfeits for record in records)
    moved = {control.base for control, record in zip(controls(), records, strict=True) if record.moves}
    assert moved >= {each.base for each in CONTROLS if each.base <= 20}
    assert sum(record.moves for record in records) >= 24
