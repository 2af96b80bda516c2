# SPDX-License-Identifier: GPL-3.0-or-later
"""A state of the service, as metrics are told it."""

from evaluator.devices.metrics import State

STATE = State(
    ready=True,
    clients=2,
    connections=3,
    queued={"t82": {"play": 5, "analysis": 0, "selfplay": 2}},
    running={"0:gpu": 1},
    in_use={"0:gpu": True},
    device_memory={"0:gpu": {"used": 3, "total": 5}},
    device_sensors={"0:gpu": {"watts": 412.5, "celsius": 61.0}},
    curves={"t82": {"0:gpu": {"measured": 16, "largest": 1024, "known": False}}},
    buffered_bytes=7,
    closed_connections={"unread": 1},
    busy_seconds={"0:gpu": 12.5},
    target_ms={"play": 50.0},
    max_connections=4096,
    keys={"laptop": {"in_flight": 1, "requests": 2, "positions": 9, "refused": 1}},
)
