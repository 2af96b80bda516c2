# SPDX-License-Identifier: GPL-3.0-or-later
"""Where tests find their data: the product, copies here, and a larger shared set where it is present."""

import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
SHARED = REPOSITORY.parent / "shared"
DATA = REPOSITORY / "tests" / "data"
TABLES = REPOSITORY / "engine" / "tablebases"
CACHE, USER_DATA = (
    ["WIN_PD_OVERRIDE_LOCAL_APPDATA"] * 2 if sys.platform == "win32" else ("XDG_CACHE_HOME", "XDG_DATA_HOME")
)
"""Variables that name the folders above the user's cache and data."""


def shared(*parts: str) -> Path:
    """The path of a file or folder in ../shared; skips the calling test where it is absent."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"needs {path}, which is not here")
    return path
