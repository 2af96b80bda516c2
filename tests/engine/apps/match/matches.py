# SPDX-License-Identifier: GPL-3.0-or-later
"""Helpers to play matches in tests."""

import asyncio
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import chess.pgn

from engine.apps.campaign.campaign import RunEnding
from engine.apps.match.campaign import MatchCampaign
from engine.apps.match.config import MatchConfig, PlayerConfig
from engine.apps.match.timecontrol import TimeControl
from engine.options import Options
from tests.engine.apps.games.recorder import Recorder

PROGRAM = Path(__file__).with_name("players") / "uci_program.py"

RANDOM = Options(backend="random", hash=1, tree_memory=16)


def program(name: str, fault: str = "none", ply: int = 0, **time: int) -> PlayerConfig:
    """A scripted UCI program."""
    command = (sys.executable, str(PROGRAM), fault, str(ply))
    return PlayerConfig(name, TimeControl(**(time or {"nodes": 1})), command=command)


def engine(name: str, nodes: int = 8, **options: Any) -> PlayerConfig:
    """This engine on the `random` backend."""
    return PlayerConfig(name, TimeControl(nodes=nodes), options=RANDOM.changed(**options))


def play(
    config: MatchConfig, view: Any = None, *, restart: bool = False
) -> tuple[RunEnding, MatchCampaign, Recorder]:
    """Play a match to its end."""
    recorder = view if view is not None else Recorder()
    campaign = MatchCampaign(config)
    return asyncio.run(campaign.run(recorder, restart=restart)), campaign, recorder


def match(tmp_path: Path, players: Sequence[PlayerConfig], **values: Any) -> MatchConfig:
    """A small match in a folder."""
    values = {"games": 2, "workers": 1} | values
    return MatchConfig(tuple(players), output=str(tmp_path / "match"), **values)


def replay(path: Path) -> list[chess.pgn.Game]:
    """The games of a PGN, each replayed without an error to an end that its result tells."""
    games = []
    stream = io.StringIO(path.read_text("utf-8"))
    while (game := chess.pgn.read_game(stream)) is not None:
        assert not game.errors
        board = game.end().board()
        if game.headers["Termination"] == "normal":
            assert board.outcome(claim_draw=True) is not None
            if board.is_checkmate():
                assert game.headers["Result"] == ("0-1" if board.turn == chess.WHITE else "1-0")
            else:
                assert game.headers["Result"] == "1/2-1/2"
        games.append(game)
    return games
