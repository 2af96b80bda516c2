# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of saved trees: what must be the same to load one, and how a file is replaced safely.

engine/core/tree/file.h describes the format.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from engine._core import tree_file_header
from protocol.common import files

if TYPE_CHECKING:
    from engine._core import Game, SearchParams, TreeFileSize

MAGIC = b"\x89WFTREE\n"
"""The first bytes of a file (engine/core/tree/file.h)."""

PARAMETERS = {
    "input_format": "input format",
    "history_fill": "HistoryFill",
    "policy_temperature": "PolicyTemperature",
    "cache_history_length": "CacheHistoryLength",
    "transposition_visits": "TranspositionVisits",
    "two_fold_draws": "TwoFoldDraws",
    "sticky_endgames": "StickyEndgames",
    "wdl_ratio": "Contempt (ratio)",
    "wdl_shift": "Contempt (shift)",
    "wdl_max_scale": "WDLMaxS",
    "syzygy_50_move_rule": "Syzygy50MoveRule",
    "syzygy_fast_play": "SyzygyFastPlay",
    "known_draws": "KnownDraws",
    "subtree_value_bias": "SubtreeValueBias",
}
"""Parameters of the core whose change clears its tree (same_tree in engine/core/tree/tree.cc), with the names
that messages use."""

Favoured = tuple[frozenset[str], frozenset[str]]
"""Moves that limited searches of the root favoured, and those of the last one (SearchTree)."""


def tree_settings(params: SearchParams, network: str, tablebases: str) -> list[tuple[str, str]]:
    """Return names and values of the settings that a tree's values depend on.

    network: NetworkInfo.identity. tablebases: the value of SyzygyPath.
    """
    settings = [("network", network), ("SyzygyPath", tablebases)]
    settings += [(title, _text(getattr(params, name))) for name, title in PARAMETERS.items()]
    spread = params.value_choice_deviations > 0
    settings.append(("spread of values (ValueChoiceDeviations)", _text(spread)))
    return settings


def _text(value: object) -> str:
    if isinstance(value, float):
        import numpy

        return str(numpy.float32(value + 0.0))  # The core has single precision; -0.0 is 0.0.
    return str(value)


def read_header(path: str) -> tuple[Game, Favoured | None]:
    """Return the game of a saved tree, and the favoured moves of its root, if any.

    Raises ValueError for a missing, damaged or foreign file.
    """
    if not Path(path).exists():
        raise ValueError("there is no such file")
    if not Path(path).is_file():
        raise ValueError("this is not a file")
    game, note = tree_file_header(path)
    return game, _favoured(note)


def note_of(favoured: Favoured | None) -> str:
    """Return favoured moves as the note of a file."""
    return "" if favoured is None else json.dumps([sorted(moves) for moves in favoured])


def _favoured(note: str) -> Favoured | None:
    """Return the favoured moves in a note. Raises ValueError for another text."""
    if not note:
        return None
    try:
        first, last = json.loads(note)
        return frozenset(map(str, first)), frozenset(map(str, last))
    except (TypeError, ValueError, RecursionError):
        raise ValueError("the file is damaged: its note is invalid") from None


def replace_file(path: str, write: Callable[[str], TreeFileSize]) -> TreeFileSize:
    """Write a tree to a new file next to `path`, rename it to `path`, and return the result of `write`.

    If anything fails, an existing file stays as it is. Raises ValueError if that is not a saved tree, or if
    the folder cannot be written.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not _is_tree(target):
        raise ValueError("the file exists and is not a tree of Wavefront: choose another name")
    new = target.with_name(f".{target.name[:100]}.{os.getpid()}.new")
    try:
        files.check_name(Path(path))
        # Not NamedTemporaryFile: the tree gets the permissions of any new file.
        os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except FileExistsError:
        raise ValueError(f"{new} is in the way: remove it") from None
    except OSError as error:
        raise ValueError(f"the file cannot be written: {error.strerror}") from None
    try:
        size = write(str(new))
        with new.open("rb+") as file:
            os.fsync(file.fileno())
        files.replace_file(new, target)
    except OSError as error:
        raise ValueError(f"the file cannot be written: {error.strerror}") from None
    finally:
        new.unlink(missing_ok=True)
    return size


def _is_tree(path: Path) -> bool:
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def described(size: TreeFileSize) -> str:
    """Return the size of a saved tree as a text."""
    return f"{size.visits} nodes, {size.nodes} positions, {size.bytes / 1e6:.1f} MB"
