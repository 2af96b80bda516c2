# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits of the API for each client: a token, or an address without tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil
from time import perf_counter

from protocol.common.http.middleware import TOO_MANY, HttpError
from protocol.common.settings.spec import SettingsGroup, setting

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


@dataclass(eq=False, slots=True)
class Charge:
    """A running request or job of a client. end: called with the reason when it must end. Only the event loop
    may use it."""

    client: str
    end: Callable[[HttpError], object]
    positions: int = 0
    ended: HttpError | None = None


@dataclass(slots=True)
class _Use:
    """spent: seconds that are not available yet, at time `at`."""

    running: set[Charge] = field(default_factory=set)
    spent: float = 0.0
    at: float = 0.0
    timer: asyncio.TimerHandle | None = None


class ClientLimits:
    """The use of each client. Only the event loop may use it."""

    def __init__(self, settings: ApiSettings) -> None:
        self._settings = settings
        self._uses: dict[str, _Use] = {}

    @contextmanager
    def charged(self, client: str) -> Iterator[Charge]:
        """Context manager of a request or job. When its client's seconds are spent, or its token is removed,
        it is cancelled, unless its `end` was replaced. Raises HttpError."""
        settings = self._settings
        if client not in self._uses and len(self._uses) > MOST_KNOWN:
            self._uses = {name: use for name, use in self._uses.items() if use.running}
        use = self._uses.setdefault(client, _Use(at=perf_counter()))
        self._count_seconds(use)
        if len(use.running) >= settings.max_requests:
            text = f"{len(use.running)} requests are in flight, of at most {settings.max_requests}"
            raise _too_many(text, 1)
        if settings.max_seconds and use.spent >= settings.max_seconds:
            raise self._spent(use)
        task = asyncio.current_task()
        assert task is not None
        charge = Charge(client, lambda _: task.cancel())
        self._count(use, use.running.add, charge)
        try:
            yield charge
        except asyncio.CancelledError:
            if charge.ended is None or task.uncancel():
                raise
            raise charge.ended from None
        finally:
            self._count(use, use.running.discard, charge)

    def add(self, charge: Charge, positions: int) -> None:
        """Count positions until the request ends. Raises HttpError."""
        most, running = self._settings.max_positions, self._uses[charge.client].running
        used = sum(each.positions for each in running)
        if positions > most:
            raise HttpError(413, f"{positions:,} positions are more than {most:,} at a time")
        if used + positions > most:
            raise _too_many(f"{used:,} positions are in flight, of at most {most:,}", 1)
        charge.positions += positions

    def end(self, clients: Collection[str], error: HttpError) -> int:
        """End all that runs for these clients. Return the number of their requests."""
        meant = [charge for client in clients if (use := self._uses.get(client)) for charge in use.running]
        for charge in meant:
            if charge.ended is None:
                charge.ended = error
                charge.end(error)
        return len(meant)

    def _count(self, use: _Use, change: Callable[[Charge], None], charge: Charge) -> None:
        """Add or remove a request, and set the timer for when the seconds are spent if no others come."""
        self._count_seconds(use)
        change(charge)
        if use.timer is not None:
            use.timer.cancel()
        most, rate = self._settings.max_seconds, self._rate(use)
        if most and use.running and rate > 0:
            left = max(0.0, most - use.spent) / rate
            use.timer = asyncio.get_running_loop().call_later(left, self._end_spent, charge.client)

    def _rate(self, use: _Use) -> float:
        return len(use.running) - self._settings.max_seconds / WINDOW_S

    def _count_seconds(self, use: _Use) -> None:
        now = perf_counter()
        use.spent, use.at = max(0.0, use.spent + self._rate(use) * (now - use.at)), now

    def _end_spent(self, client: str) -> None:
        self._count_seconds(self._uses[client])
        self.end([client], self._spent(self._uses[client]))

    def _spent(self, use: _Use) -> HttpError:
        most = self._settings.max_seconds
        wait = max(0.0, use.spent - most) * WINDOW_S / most
        return _too_many(f"{most:g} s of requests per minute are spent", ceil(wait) + 1)


def _too_many(text: str, wait_s: int) -> HttpError:
    return HttpError(TOO_MANY, text, Retry_After=str(wait_s))
