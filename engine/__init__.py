# SPDX-License-Identifier: GPL-3.0-or-later
"""The search process: UCI, MCTS over a native core, and the Python API.

The API is `from engine import Engine`; see `engine.api`. It is imported on first use, because a UCI engine
must answer before numpy and ZeroMQ are loaded.
"""

from __future__ import annotations

from pathlib import Path as _Path
from typing import TYPE_CHECKING

from protocol.common.native import locate_core as _locate_core
from protocol.common.version import __version__ as __version__

if TYPE_CHECKING:
    from engine._core import Game as Game
    from engine.api import Analysis as Analysis
    from engine.api import Engine as Engine
    from engine.api import EngineError as EngineError
    from engine.api import PlayResult as PlayResult
    from engine.evaluation.link.encoding import encode_games as encode_games

_API = {
    "Analysis": "engine.api",
    "Engine": "engine.api",
    "EngineError": "engine.api",
    "Game": "engine._core",
    "PlayResult": "engine.api",
    "encode_games": "engine.evaluation.link.encoding",
}
"""The public names and the modules that define them."""

_locate_core(__name__, __path__, _Path(__file__).resolve().parent)


def __getattr__(name: str) -> object:
    if name in _API:
        from importlib import import_module

        return getattr(import_module(_API[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
