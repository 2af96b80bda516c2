# SPDX-License-Identifier: GPL-3.0-or-later
"""A pytest plugin for runs under Wine (`-p tests.windows.left_out`): leaves out what left_out.toml names.

It fails a run in which more tests are left out than that file allows, or in which an entry names no test.
"""

import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

LISTED = Path(__file__).with_suffix(".toml")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Do not import files that are left out as a whole."""
    return (
        True
        if collection_path.as_posix().endswith(tuple(f"tests/{name}" for name in _listed(".py")))
        else None
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    most = tomllib.loads(LISTED.read_text("utf-8"))["most_percent"]
    patterns = [f"tests/{name}" for name in _listed("") if not name.endswith(".py")]
    names = {item: item.nodeid.partition("[")[0] for item in items}
    out = {item for item in items if any(fnmatch(names[item], pattern) for pattern in patterns)}
    config.hook.pytest_deselected(items=[*out])
    share = 100 * len(out) / max(1, len(items))
    unused = [pattern for pattern in patterns if not any(fnmatch(names[item], pattern) for item in out)]
    if config.args == ["tests"] and (share > most or unused):
        raise pytest.UsageError(f"{LISTED}: {share:.1f} % are left out; entries without a test: {unused}")
    items[:] = [item for item in items if item not in out]


def _listed(end: str) -> list[str]:
    entries = tomllib.loads(LISTED.read_text("utf-8"))["left_out"]
    return [name for entry in entries for name in entry["tests"] if name.endswith(end)]
