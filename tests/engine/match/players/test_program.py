# SPDX-License-Identifier: GPL-3.0-or-later
"""A UCI program as a player: what it is told before it plays."""

from __future__ import annotations

import asyncio
import sys

import pytest

from engine.match.config import PlayerConfig, UciValue
from engine.match.players.player import PlayerError
from engine.match.players.program import ProgramPlayer
from tests.engine.match.matches import PROGRAM


def started(preferred: dict[str, UciValue], **options: UciValue) -> None:
    """Start the scripted program, whose only number is Threads, from 1 to 4."""

    async def start() -> None:
        config = PlayerConfig("a", command=(sys.executable, str(PROGRAM)), uci_options=options)
        player = ProgramPlayer(config, preferred=preferred)
        try:
            await player.start()
        finally:
            await player.close()

    asyncio.run(asyncio.wait_for(start(), 60))


def test_a_preferred_option_is_set_where_the_program_has_it() -> None:
    started({"SmartPruningFactor": 0})
    with pytest.raises(PlayerError, match="Threads is 1 to 4, not 9"):
        started({"threads": 9})


def test_what_was_given_goes_before_what_is_preferred() -> None:
    started({"Threads": 9}, threads=2)
