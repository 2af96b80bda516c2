# SPDX-License-Identifier: GPL-3.0-or-later
"""Command-line settings of `wavefront analysis`, besides the engine's options."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.common.settings.spec import SettingsGroup, setting


@dataclass(frozen=True, slots=True)
class AnalysisSettings(SettingsGroup):
    """Number of concurrent searches, default limit of queries, and limits for one client."""

    searches: int = setting(
        0, "positions searched concurrently; 0: as many as keep the evaluator busy", low=0, high=4096
    )
    client_searches: int = setting(
        0, "maximum concurrent searches of one client; 0: all that no other client needs", low=0, high=4096
    )
    nodes: int = setting(800, "nodes of a query without a limit", low=1, high=4_000_000_000)
    max_queued: int = setting(
        100_000, "maximum waiting positions of one client; a query beyond that is refused", low=1
    )
    max_queued_bytes: int = setting(
        16 << 20, "maximum total bytes of one client's queries with waiting positions", low=1024, high=1 << 40
    )
    max_message_bytes: int = setting(
        1 << 18, "maximum bytes of a query; a longer one is refused", low=256, high=1 << 30
    )
    max_unread_bytes: int = setting(
        8 << 20,
        "unread bytes of answers of one client; at half of it no further position starts",
        low=1024,
        high=1 << 40,
    )
