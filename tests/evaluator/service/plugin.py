# SPDX-License-Identifier: GPL-3.0-or-later
"""A backend for processes under test, found as any plug-in is: it hangs, or fails, while a file says so."""

import os
from pathlib import Path

CODE = """
import os
import numpy as np
from evaluator.backends.common.base import Backend, BackendError
from protocol.batch import EvaluationBatch

NEEDS_NETWORK = False
HANGS, FAILS = os.environ["PLUGIN_HANGS"], os.environ["PLUGIN_FAILS"]

def unavailable():
    return None

class Plugin(Backend):
    name, device, max_batch = "plugin", "a device of the tests", 64

    def evaluate(self, batch):
        if os.path.exists(HANGS):
            os.open(HANGS, os.O_RDONLY)  # a pipe: blocks until somebody writes
        if os.path.exists(FAILS):
            raise BackendError("the device fell off the bus")
        count = len(batch.positions)
        wdl = np.full((count, 3), 1 / 3, np.float32)
        return EvaluationBatch(np.zeros(len(batch.moves), np.float32), wdl, np.zeros(count, np.float32))

def open(network, settings):
    return Plugin()
"""


class Plugin:
    """Installs the backend `plugin` in a folder for processes with `environment`, and tells it what to do."""

    def __init__(self, folder: Path) -> None:
        metadata = folder / "wavefront_test_plugin-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: wavefront-plugin\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text("[wavefront.backends]\nplugin = wavefront_test_plugin\n")
        (folder / "wavefront_test_plugin.py").write_text(CODE)
        self._hangs, self._fails = folder / "hangs", folder / "fails"
        self.environment = {"PLUGIN_HANGS": str(self._hangs), "PLUGIN_FAILS": str(self._fails)}

    def hang(self) -> None:
        """Let every batch from now on wait for ever."""
        os.mkfifo(self._hangs)

    def fail(self) -> None:
        """Let every batch fail."""
        self._fails.touch()

    def work(self) -> None:
        """Let every batch succeed, those that hang as well."""
        self._fails.unlink(missing_ok=True)
        if self._hangs.exists():
            # Both ends: nobody may be waiting, and who comes later finds a writer.
            self._pipe = os.open(self._hangs, os.O_RDWR)
            self._hangs.unlink()
