# SPDX-License-Identifier: GPL-3.0-or-later
"""A running service, in this process or in one of its own, for whoever asks for it."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.evaluator.service.harness import Harness, running
from tests.evaluator.service.plugin import Plugin
from tests.paths import CACHE, REPOSITORY


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    """A service whose device is an EchoBackend."""
    with running(tmp_path) as running_harness:
        yield running_harness


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Folders of our own for caches and for sockets, whose paths must be short."""
    with tempfile.TemporaryDirectory(prefix="wf") as runtime:
        yield {
            **os.environ,
            "XDG_RUNTIME_DIR": "",
            "TMPDIR": runtime,
            CACHE: str(tmp_path / "cache"),
            "PYTHONPATH": str(REPOSITORY),
        }


@pytest.fixture
def plugin(environment: dict[str, str], tmp_path: Path) -> Plugin:
    """The backend `plugin` in the environment."""
    installed = Plugin(tmp_path / "plugin")
    environment.update(installed.environment)
    environment["PYTHONPATH"] += os.pathsep + str(tmp_path / "plugin")
    return installed
