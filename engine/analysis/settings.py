"""Settings of `wavefront analysis` on its command line, besides the engine's options."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.settings.spec import SettingsGroup, setting


@dataclass(frozen=True, slots=True)
class AnalysisSettings(SettingsGroup):
    """How many searches run at once, what a query without limits gets, and what one client may take up."""

    searches: int = setting(
        0, "positions searched at a time; 0 takes as many as keep the evaluator busy", low=0, high=4096
    )
    workers: int = setting(
        0, "processes that search; 0 takes as many as the evaluator's speed asks for", low=0, high=256
    )
    client_searches: int = setting(
        0, "of these, for one client at most; 0 lets one have all that no other wants", low=0, high=4096
    )
    nodes: int = setting(800, "nodes of a query that names no limit", low=1, high=4_000_000_000)
    max_queued: int = setting(
        100_000, "positions of one client that may wait; a query that would add more is refused", low=1
    )
    max_queued_bytes: int = setting(
        16 << 20, "length of the queries of one client whose positions wait, together", low=1024, high=1 << 40
    )
    max_message_bytes: int = setting(
        1 << 18, "length of a query, at most; a longer one is refused", low=256, high=1 << 30
    )
    max_unread_bytes: int = setting(
        8 << 20,
        "answers that may wait for a client to read them: with half as many no further position is begun for "
        "it, and a client of --listen with more is disconnected",
        low=1024,
        high=1 << 40,
    )
    max_unread_seconds: float = setting(
        30.0, "a client of --listen that reads nothing for so long is disconnected", low=0.1, high=86400
    )
    max_clients: int = setting(64, "clients of --listen at a time", low=1, high=65536)
