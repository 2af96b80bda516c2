"""The search process: UCI, MCTS over a native core, and the Python API."""

from pathlib import Path as _Path

from engine.native import locate_core as _locate_core

_locate_core(__name__, __path__, _Path(__file__).resolve().parent)
