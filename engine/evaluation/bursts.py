# SPDX-License-Identifier: GPL-3.0-or-later
"""Bursts: the core exchanges a search's batches without the interpreter, for some milliseconds per call.

The core (engine/core/exchange) collects and sends batches and applies results. It leaves other messages to
`Requests.receive`. Between two bursts Python checks limits, reports and `stop`.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from engine._core import BatchRule

BurstEnd = Literal["time", "look", "idle", "silence", "other"]
"""Why a burst ended. time: its time is over. look: the visits or the depth require a check of the search.
idle: nothing is in flight, and there is nothing to send. silence: no message within the longest wait, or an
interrupt. other: Python must receive the next message."""


class BurstLimits(TypedDict):
    """Limits of a burst. Times are seconds from now.

    until: the burst ends with the first answer from then on. patience: end of the longest wait. hard:
    deadline for the answers to what is sent; None: none. nodes: maximum visits in all, or playouts if
    `nodes_as_playouts`; None: unlimited. look_at, depth: root visits and mean depth that require a check.
    interrupt: descriptor whose input ends a wait; -1: none.
    """

    rule: BatchRule
    until: float
    patience: float
    hard: float | None
    nodes: int | None
    nodes_as_playouts: bool
    look_at: int
    depth: float
    interrupt: int
