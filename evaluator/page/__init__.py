# SPDX-License-Identifier: GPL-3.0-or-later
"""The status page: its files and their HTTP headers.

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

HEADERS = {
    "Content_Security_Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X_Content_Type_Options": "nosniff",
    "X_Frame_Options": "DENY",
    "Referrer_Policy": "no-referrer",
    "Cross_Origin_Resource_Policy": "same-origin",
    "Cross_Origin_Opener_Policy": "same-origin",
    "Cache_Control": "no-cache",
}
"""HTTP headers of the page and its files, with _ instead of -. Only the page's own scripts run, whatever
names clients and networks have."""


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
