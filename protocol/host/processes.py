"""How a process of several threads ends, and how one is started that a terminal's Ctrl-C is not meant for."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
from typing import Any, NoReturn


def leave(status: int) -> NoReturn:
    """End the process.

    Threads that are still in native code, such as one that opens a network, would return into an interpreter
    that is shutting down, which ends them by force, and the process with "terminate called without an active
    exception". Where there may be such threads the process is left without shutting down.
    """
    if all(not thread.daemon for thread in threading.enumerate()):
        sys.exit(status)
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    os._exit(status)


def group_of_its_own() -> dict[str, Any]:
    """Arguments of subprocess.Popen for a process that its parent ends: a terminal sends Ctrl-C to the parent
    alone."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW}
    return {"process_group": 0}
