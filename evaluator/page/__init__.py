# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of the status page.

All files are our own: no framework, no build step, no other host. The page polls /status
(evaluator/service/http/overview.py) each second and draws the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/schema+json",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class File:
    """A file of the page: its content and its HTTP type."""

    body: bytes
    content_type: str


@cache
def files() -> dict[str, File]:
    """Return every file of the page by URL path."""
    found = {}
    for each in resources.files(__name__).joinpath("files").iterdir():
        suffix = each.name[each.name.rfind(".") :]
        path = "/" if each.name == "index.html" else f"/page/{each.name}"
        found[path] = File(each.read_bytes(), _TYPES[suffix])
    return found
