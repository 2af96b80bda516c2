"""Files that spare the next start some work, and that the evaluator can do without."""

from __future__ import annotations

import logging
from pathlib import Path

from protocol.host.files import write_atomically


def kept(path: Path, data: bytes, log: logging.Logger, what: str, otherwise: str) -> bool:
    """Write a file for later starts, and tell whether that could be done; where not, it is logged.

    what: what is in the file. otherwise: what each start does without it.
    """
    try:
        write_atomically(path, data)
    except OSError as error:
        log.warning(
            "%s: %s: %s cannot be kept there, and each start %s", path.parent, error.strerror, what, otherwise
        )
        return False
    return True
