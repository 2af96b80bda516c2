# SPDX-License-Identifier: GPL-3.0-or-later
"""Name and author of the engine, and the UCI options without a value in `Options`."""

from __future__ import annotations

from protocol.common.version import __version__

NAME = f"Wavefront {__version__} (Lc0 networks)"
"""Nibbler shows the statistics of all moves for engines whose name has "Lc0" in it."""

AUTHOR = "the Wavefront authors"

CLEAR_TREE = "ClearTree"
"""A button that clears the tree and the evaluation cache."""

SAVE_TREE = "SaveTree"
"""A path: setting it saves the tree to that file."""

LOAD_TREE = "LoadTree"
"""A path: setting it loads the tree of that file."""

ABOUT = "UCI_EngineAbout"
"""A text that GUIs show; setting it changes nothing."""

ABOUT_TEXT = f"Wavefront {__version__}: MCTS over lc0 networks, with the evaluator in a process of its own"
