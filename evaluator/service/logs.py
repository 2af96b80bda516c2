# SPDX-License-Identifier: GPL-3.0-or-later
"""The log, as plain text or JSON lines."""

from __future__ import annotations

import json
import logging
import sys
from collections import deque
from datetime import UTC, datetime
from textwrap import indent
from typing import Any

from protocol.common.printing import printable

KEPT_WARNINGS = 20

LONGEST_WARNING = 1000
"""Maximum length of a kept warning in characters."""


ABOUT = ("client", "request", "network")
"""What a record may be about (`extra` of the logging call): who asked for it, by the name of the key or the
address; the id of the request; the network."""


class LineFormatter(logging.Formatter):
    """Formats a record as one line of printable text, so that names cannot forge another. The lines of an
    exception are indented."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging names it
        return printable(super().formatMessage(record))

    def formatException(self, exc_info: Any) -> str:  # noqa: N802 - logging names it
        return indent(super().formatException(exc_info), "  ", lambda line: True)


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object: time (ISO 8601, UTC), level, logger, thread, message, and exception
    and what it is about, if present."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        entry |= {name: getattr(record, name) for name in ABOUT if hasattr(record, name)}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def configure(level: str, form: str) -> None:
    """Write the log to stderr. level: name of a `logging` level in any case. form: text or json."""
    handler = logging.StreamHandler(sys.stderr)
    if form == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(LineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])


class Warnings(logging.Handler):
    """Keeps the last warnings and errors of the log. Any thread may call the methods."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._kept: deque[dict[str, Any]] = deque(maxlen=KEPT_WARNINGS)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record, without its traceback."""
        try:
            message = printable(record.getMessage())
            if record.exc_info and record.exc_info[1] is not None:
                message += f": {record.exc_info[1]!r}"
        except Exception:  # as in every logging handler: a bad record must not raise
            self.handleError(record)
            return
        self._kept.append(
            {"time": record.created, "level": record.levelname.lower(), "message": message[:LONGEST_WARNING]}
        )

    def last(self) -> list[dict[str, Any]]:
        """Return the kept records, newest first: time (seconds of the Unix epoch), level and message."""
        self.acquire()
        try:
            return list(reversed(self._kept))
        finally:
            self.release()
