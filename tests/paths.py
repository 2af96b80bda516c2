# SPDX-License-Identifier: GPL-3.0-or-later
"""Where tests find their data: copies in the repository, and the larger shared set where it is present."""

from __future__ import annotations

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
SHARED = REPOSITORY.parent / "shared"
DATA = REPOSITORY / "tests" / "data"


def shared(*parts: str) -> Path:
    """The path of a file or folder in ../shared; skips the calling test where it is absent."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"needs {path}, which is not here")
    return path
