# SPDX-License-Identifier: GPL-3.0-or-later
"""A UCI program as a player: what it is told before it plays."""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from engine.apps.games.record import Reason
from engine.apps.match.adjudication import Adjudication
from engine.apps.match.config import PlayerConfig, UciValue
from engine.apps.match.players.player import PlayerError
from engine.apps.match.players.program import ProgramPlayer
from tests.engine.apps.match.matches import PROGRAM, match, play


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
    with pytest.raises(PlayerError, match=r"1.*4,.*9"):
        started({"threads": 9})


def test_given_options_override_preferred_ones() -> None:
    started({"Threads": 9}, threads=2)


def test_program_ponders_and_hears_of_hits_and_misses(tmp_path: Path) -> None:
    """Programs play the first legal move. One expects that of the other, one expects another move."""
    players = []
    for kind in ("ponder", "guess"):
        command = (sys.executable, str(PROGRAM), kind, "0", str(tmp_path / kind))
        players.append(PlayerConfig(kind, command=command, ponder=True))
    config = match(tmp_path, players, games=2, adjudication=Adjudication(max_moves=9))
    _, _, recorder = play(config)
    assert [record.reason for record in recorder.records] == [Reason.MOVE_LIMIT] * 2
    heard = {kind: (tmp_path / kind).read_text().split("\n")[:-1] for kind in ("ponder", "guess")}
    assert {"go", "go ponder", "ponderhit"} <= set(heard["ponder"])
    assert "ponderhit" not in heard["guess"] and heard["guess"].count("stop") >= 4
    assert heard["ponder"].count("ponderhit") >= 4


def test_a_program_that_does_not_ponder_is_asked_on_its_own_time(tmp_path: Path) -> None:
    command = (sys.executable, str(PROGRAM), "ponder", "0", str(tmp_path / "heard"))
    player = PlayerConfig("a", command=command)
    config = match(tmp_path, [player, replace(player, name="b")], adjudication=Adjudication(max_moves=8))
    play(config)
    assert set((tmp_path / "heard").read_text().split()) == {"go"}
