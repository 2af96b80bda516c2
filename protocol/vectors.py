# SPDX-License-Identifier: GPL-3.0-or-later
"""The protocol's test vectors, as they ship: made by `scripts/protocol_vectors.py`."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any


@cache
def vectors() -> list[dict[str, Any]]:
    """One map for each position and input format; docs/reference/protocol.md tells the keys."""
    found: list[dict[str, Any]] = json.loads(
        resources.files("protocol").joinpath("vectors.json").read_bytes()
    )
    return found
