# SPDX-License-Identifier: GPL-3.0-or-later
"""A pytest plugin for runs under Wine (`-p tests.windows.left_out`): leaves out what left_out.toml names.

It fails a run in which more tests are left out than that file allows, or in which an entry names no test.
"""

from __future__ import annotations

import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

LISTED = Path(__file__).with_suffix(".toml")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    listed = tomllib.loads(LISTED.read_text("utf-8"))
    patterns = [f"tests/{name}" for entry in listed["left_out"] for name in entry["tests"]]
    matches = {
        pattern: [item for item in items if fnmatch(item.nodeid.partition("[")[0], pattern)]
        for pattern in patterns
    }
    out = {item for found in matches.values() for item in found}
    config.hook.pytest_deselected(items=[*out])
    share = 100 * len(out) / len(items)
    unused = [pattern for pattern, found in matches.items() if not found]
    if share > listed["most_percent"] or (unused and config.args == ["tests"]):
        raise pytest.UsageError(f"{LISTED}: {share:.1f} % are left out; entries without a test: {unused}")
    items[:] = [item for item in items if item not in out]
