# SPDX-License-Identifier: GPL-3.0-or-later
"""How often searches report."""

import pytest

from engine.apps.analysis.pace import LEAST_SECONDS, SHARE, Reporter, ReportPace


def test_one_search_reports_as_often_as_it_is_asked_to() -> None:
    pace = ReportPace()
    assert [pace.place(now) for now in (10.0, 12.0, 14.0)] == [10.0, 12.0, 14.0]
    assert Reporter(pace, 2.0, lambda search, tree: None).seconds == 2.0
    assert Reporter(pace, 1e-9, lambda search, tree: None).seconds == LEAST_SECONDS


def test_many_searches_take_turns_and_a_bounded_share_of_the_time() -> None:
    pace = ReportPace()
    cost, searches = 0.01, 100
    for _ in range(200):
        pace.took(cost)
    due = [0.0] * searches
    reports = [0] * searches
    while (now := min(due)) < 60.0:
        search = due.index(now)
        due[search] = pace.place(now) + LEAST_SECONDS
        reports[search] += 1
    assert sum(reports) * cost <= 60.0 / SHARE * 1.2
    assert max(reports) - min(reports) <= 1


def test_cheaper_reports_come_more_often() -> None:
    pace = ReportPace()
    for _ in range(200):
        pace.took(0.0)
    assert [pace.place(1.0) for _ in range(50)] == [pytest.approx(1.0)] * 50
