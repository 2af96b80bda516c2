# SPDX-License-Identifier: GPL-3.0-or-later
"""The page for people that a service shows: its files, and the headers that they are sent with.

Files of our own and nothing else: no framework, no build step, no other host. The page reads /status
(evaluator/service/http/overview.py) each second and draws what it finds.
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
"""Of every answer to the page and what belongs to it, with _ for -. Nothing runs in the page but its own
files, whatever names the clients and networks of a service have."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of the page: what it holds, and its type in HTTP."""

    body: bytes
    content_type: str


@cache
def files() -> dict[str, File]:
    """Every file of the page, by the path that it is asked for by."""
    found = {}
    for each in resources.files(__name__).joinpath("files").iterdir():
        suffix = each.name[each.name.rfind(".") :]
        path = "/" if each.name == "index.html" else f"/page/{each.name}"
        found[path] = File(each.read_bytes(), _TYPES[suffix])
    return found
