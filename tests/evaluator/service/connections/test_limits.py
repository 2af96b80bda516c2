# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits of connections, and what the log says of closed ones."""

import pytest

from evaluator.service.connections.limits import ClosedLog, ConnectionLimits


@pytest.mark.parametrize(
    ("connections", "wanted", "most"), [(4096, 0, 1024), (40, 3, 3), (40, 11, 10), (1, 0, 1)]
)
def test_address_has_at_most_a_quarter_of_the_connections(connections: int, wanted: int, most: int) -> None:
    assert ConnectionLimits(connections, silent_per_address=wanted).most_silent == most


def test_closed_connections_are_one_line_for_each_reason(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    log = ClosedLog()
    log.log([("10.0.0.1", "parts")], {"parts": 1})
    assert "closed a connection from 10.0.0.1" in caplog.text
    caplog.clear()
    log.log([(f"10.0.0.{number}", "late") for number in range(5)], {"parts": 1, "late": 5})
    log.log([("10.0.0.9", "parts")], {"parts": 3, "late": 7})
    assert not caplog.records, "a second has not passed"
    now[0] += 2.0
    log.log([], {"parts": 3, "late": 7})
    late, parts = (record.getMessage() for record in caplog.records)
    assert late.startswith("closed 7 connections from 10.0.0.0, 10.0.0.1, 10.0.0.2 and others: ")
    assert parts.startswith("closed 2 connections from 10.0.0.9: ")
