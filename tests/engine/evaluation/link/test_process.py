# SPDX-License-Identifier: GPL-3.0-or-later
"""The evaluator that the engine starts: engine.evaluation.link.process."""

import json
import sys

import pytest

from engine.evaluation.errors import EvaluatorRefusalError, NoEvaluatorError
from engine.evaluation.link.process import EvaluatorProcess


def saying(*events: dict[str, str]) -> EvaluatorProcess:
    """A process that prints these events, and a line that is none, in place of an evaluator."""
    lines = ["not JSON", *(json.dumps(event) for event in events)]
    return EvaluatorProcess([sys.executable, "-c", "".join(f"print({line!r});" for line in lines)])


def test_progress_of_a_starting_evaluator_is_reported() -> None:
    told: list[str] = []
    process = saying(
        {"event": "bound", "address": "ipc://somewhere"},
        {"event": "progress", "message": "compiling kernels"},
        {"event": "ready"},
    )
    assert process.await_ready(told.append) == "ipc://somewhere"
    assert process.close() == 0
    assert told == ["evaluator: compiling kernels"]
    assert process.pid is None


def test_the_reason_an_evaluator_gives_is_passed_on() -> None:
    process = saying({"event": "error", "message": "no such network"})
    with pytest.raises(EvaluatorRefusalError, match="no such network"):
        process.await_ready()
    process.close()


def test_an_evaluator_that_ends_without_a_word_is_no_refusal() -> None:
    process = saying({"event": "bound", "address": "ipc://somewhere"})
    with pytest.raises(NoEvaluatorError, match="exit code 0 before it was ready") as caught:
        process.await_ready()
    assert not isinstance(caught.value, EvaluatorRefusalError)
    process.close()


def test_a_program_that_cannot_be_started_is_a_refusal() -> None:
    with pytest.raises(EvaluatorRefusalError, match="cannot start"):
        EvaluatorProcess(["/there/is/no/such/program"])
