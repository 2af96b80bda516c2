# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits of the API for each client: a token, or an address without tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from time import perf_counter

from protocol.http.middleware import HttpError
from protocol.settings.spec import SettingsGroup, setting

WINDOW_S = 60.0
"""Time in which a client's `seconds` are available again."""

MOST_KNOWN = 4096
"""Idle clients that are remembered."""


@dataclass(frozen=True, slots=True)
class ApiSettings(SettingsGroup):
    """Limits of one client of the API, and of all."""

    max_requests: int = setting(64, "maximum concurrent requests of one client", low=1, high=10**6)
    max_positions: int = setting(
        20_000, "maximum positions in the concurrent requests of one client", low=1, high=10**8
    )
    max_seconds: float = setting(
        0.0, "seconds of requests of one client per minute, all together; 0 is any", high=10**6
    )
    max_body_bytes: int = setting(8 << 20, "maximum bytes of a request", low=1024, high=1 << 30)
    max_stored_bytes: int = setting(
        64 << 20,
        "maximum bytes of the page's games, and of its reviews; the oldest are deleted",
        low=1 << 20,
        high=1 << 40,
    )
    max_connections: int = setting(256, "maximum connections of all clients", low=16, high=65536)
    max_review_games: int = setting(1000, "maximum games of one review", low=1, high=10**6)


@dataclass(slots=True)
class _Use:
    """requests, positions: in flight. spent: seconds that are not available yet, at time `at`."""

    requests: int = 0
    positions: int = 0
    spent: float = 0.0
    at: float = 0.0


class ClientLimits:
    """The use of each client."""

    def __init__(self, settings: ApiSettings) -> None:
        self._settings = settings
        self._uses: dict[str, _Use] = {}

    @contextmanager
    def charged(self, client: str, positions: int) -> Iterator[None]:
        """Context manager of one request. Raises HttpError 429 if it is beyond a limit."""
        settings, now = self._settings, perf_counter()
        if client not in self._uses and len(self._uses) > MOST_KNOWN:
            self._uses = {name: use for name, use in self._uses.items() if use.requests}
        use = self._uses.setdefault(client, _Use())
        use.spent = max(0.0, use.spent - (now - use.at) * settings.max_seconds / WINDOW_S)
        use.at = now
        if positions > settings.max_positions:
            raise HttpError(
                413, f"{positions:,} positions are more than {settings.max_positions:,} at a time"
            )
        if use.requests >= settings.max_requests:
            raise _too_many(f"{use.requests} requests are in flight, of at most {settings.max_requests}", 1)
        if use.positions + positions > settings.max_positions:
            text = f"{use.positions:,} positions are in flight, of at most {settings.max_positions:,}"
            raise _too_many(text, 1)
        if settings.max_seconds and use.spent >= settings.max_seconds:
            wait = (use.spent - settings.max_seconds) * WINDOW_S / settings.max_seconds
            raise _too_many(f"{settings.max_seconds:g} s of requests per minute are spent", ceil(wait) + 1)
        use.requests += 1
        use.positions += positions
        try:
            yield
        finally:
            use.requests -= 1
            use.positions -= positions
            use.spent += perf_counter() - now


def _too_many(text: str, wait_s: int) -> HttpError:
    return HttpError(429, text, Retry_After=str(wait_s))
