# SPDX-License-Identifier: GPL-3.0-or-later
"""The log: lines for people, or JSON for programs."""

from __future__ import annotations

import json
import logging
import sys
from collections import deque
from datetime import UTC, datetime
from typing import Any

KEPT_WARNINGS = 20

LONGEST_WARNING = 1000
"""Characters of one that are kept."""


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (ISO 8601, UTC), level, logger, thread, message, and exception if there is
    one."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def configure(level: str, form: str) -> None:
    """Write the log to stderr. level: as `logging` names it, in any case. form: text or json."""
    handler = logging.StreamHandler(sys.stderr)
    if form == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])


class Warnings(logging.Handler):
    """Keeps the last warnings and errors of the log. Any thread may call the methods."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._kept: deque[dict[str, Any]] = deque(maxlen=KEPT_WARNINGS)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record, without its traceback."""
        try:
            message = record.getMessage()
            if record.exc_info and record.exc_info[1] is not None:
                message += f": {record.exc_info[1]!r}"
        except Exception:  # as every handler of logging does: a record of somebody's ends nothing
            self.handleError(record)
            return
        self._kept.append(
            {"time": record.created, "level": record.levelname.lower(), "message": message[:LONGEST_WARNING]}
        )

    def last(self) -> list[dict[str, Any]]:
        """The newest first: time (seconds of the Unix epoch), level and message."""
        self.acquire()
        try:
            return list(reversed(self._kept))
        finally:
            self.release()
