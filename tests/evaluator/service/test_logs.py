# SPDX-License-Identifier: GPL-3.0-or-later
"""The log as programs read it."""

import json
import logging
import sys

import pytest

from evaluator.service.logs import LONGEST_WARNING, JsonFormatter, LineFormatter, Warnings


def record(message: str, *arguments: object, fault: bool = False) -> logging.LogRecord:
    made = logging.LogRecord(
        "evaluator.test", logging.WARNING, __file__, 1, message, arguments, sys.exc_info() if fault else None
    )
    made.created = 1767225600.25
    return made


def test_a_line_is_one_json_object() -> None:
    line = JsonFormatter().format(record("two\nlines of %s, größer", "text"))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2026-01-01T00:00:00.250+00:00",
        "level": "warning",
        "logger": "evaluator.test",
        "thread": "MainThread",
        "message": "two\nlines of text, größer",
    }


def test_an_exception_is_part_of_its_line() -> None:
    try:
        raise ZeroDivisionError("for nothing")
    except ZeroDivisionError:
        line = JsonFormatter().format(record("failed", fault=True))
    assert "\n" not in line
    assert json.loads(line)["exception"].splitlines()[-1] == "ZeroDivisionError: for nothing"


def test_kept_warning_is_bounded_and_names_its_exception() -> None:
    kept = Warnings()
    kept.handle(record("x" * 10 * LONGEST_WARNING))
    assert len(kept.last()[0]["message"]) == LONGEST_WARNING
    try:
        raise ZeroDivisionError("for nothing")
    except ZeroDivisionError:
        kept.handle(record("failed", fault=True))
    assert kept.last()[0]["message"] == "failed: ZeroDivisionError('for nothing')"


@pytest.mark.parametrize("name", ["x\n2026-01-01 00:00:00,000 ERROR forged", "a\x1b[2Jb", "a\rb", "a\u2028b"])
def test_name_cannot_forge_a_line_of_the_log(name: str) -> None:
    line = LineFormatter().format(record("network %s is loaded", name))
    assert line.isprintable()
    kept = Warnings()
    kept.handle(record("no network %s", name))
    assert kept.last()[0]["message"].isprintable()


def test_exception_is_indented_below_its_line() -> None:
    try:
        raise ValueError("x\n2026-01-01 00:00:00,000 ERROR forged")
    except ValueError:
        _, *lines = LineFormatter().format(record("failed", fault=True)).splitlines()
    assert lines and all(line.startswith("  ") for line in lines)


def test_json_names_whom_and_what_a_record_is_about() -> None:
    made = record("asked")
    made.client, made.request, made.network = "the key laptop", 7, "net"
    entry = json.loads(JsonFormatter().format(made))
    assert (entry["client"], entry["request"], entry["network"]) == ("the key laptop", 7, "net")
