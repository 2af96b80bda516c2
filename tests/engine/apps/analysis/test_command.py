# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront analysis` as programs run it: JSON lines over pipes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import IO, Any

import pytest

from tests.paths import REPOSITORY
from tests.programs import command

pytestmark = pytest.mark.integration

COMMAND = [sys.executable, str(REPOSITORY / "run_engine.py"), "analysis", "--backend", "random"]


def run(lines: list[dict[str, Any] | str | bytes], *arguments: str, status: int = 0) -> tuple[list[Any], str]:
    """The answers to some lines, and what was said on standard error."""
    texts = [line if isinstance(line, str | bytes) else json.dumps(line) for line in lines]
    data = b"".join((text.encode() if isinstance(text, str) else text) + b"\n" for text in texts)
    done = subprocess.run([*COMMAND, *arguments], input=data, capture_output=True, timeout=120)
    assert done.returncode == status, done.stderr.decode()
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr.decode()


class Program:
    """An analysis under way."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    @property
    def input(self) -> IO[bytes]:
        assert self.process.stdin is not None
        return self.process.stdin

    def say(self, **message: Any) -> None:
        self.input.write(json.dumps(message).encode() + b"\n")
        self.input.flush()

    def next(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer


@pytest.fixture
def program() -> Iterator[Program]:
    made = Program()
    with made.process:
        yield made
        made.process.kill()


def test_the_end_of_input_ends_endless_searches_alone() -> None:
    queries: list[dict[str, Any] | str | bytes] = [
        {"id": str(number), "infinite": True} for number in (1, 2, 3)
    ]
    game = {"id": "a", "moves": ["e2e4", "e7e5"], "analyze_turns": [0, 1, 2], "nodes": 100}
    answers, _ = run([*queries, game], "--searches", "2")
    ended = {answer["id"] for answer in answers if answer.get("no_results") or answer.get("terminated")}
    assert ended == {"1", "2", "3"}
    assert [answer["root"]["visits"] for answer in answers if answer["id"] == "a"] == [100] * 3


def test_without_waiting_the_end_of_input_drops_what_is_queued() -> None:
    queries: list[dict[str, Any] | str | bytes] = [{"id": str(n), "infinite": True} for n in range(200)]
    answers, _ = run(queries, "--quit-without-waiting", "--searches", "2")
    assert len(answers) == 200
    assert all(answer.get("no_results") or answer.get("terminated") for answer in answers)


def test_bad_lines_are_answered_and_good_ones_too() -> None:
    answers, _ = run(
        ["", "not json", b"\xff\xff", {"id": "a", "nodes": 10}, "x" * 3000, {"id": "b", "nodes": 10}],
        "--max-message-bytes",
        "2000",
    )
    errors = [answer["error"] for answer in answers if "error" in answer]
    assert len(errors) == 3
    assert "longer than 2,000 bytes" in errors[-1]
    assert sorted(answer["id"] for answer in answers if "root" in answer) == ["a", "b"]


def test_a_long_search_can_be_ended_while_lines_come_in(program: Program) -> None:
    program.say(id="a", infinite=True, report_every=0.05)
    assert program.next()["during_search"]
    program.say(id="b", action="terminate_all")
    while (answer := program.next()).get("during_search", True):
        pass
    assert answer["terminated"]
    program.input.close()
    assert program.process.wait(60) == 0


def test_a_reader_that_leaves_ends_the_program(program: Program) -> None:
    program.say(id="a", infinite=True, report_every=0.01)
    program.next()
    assert program.process.stdout is not None
    program.process.stdout.close()
    assert program.process.wait(60) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_program(program: Program, number: signal.Signals) -> None:
    program.say(id="a", infinite=True, report_every=0.01)
    program.next()
    os.kill(program.process.pid, number)
    assert program.process.stdout is not None
    program.process.stdout.read()
    assert program.process.wait(60) in (130, 143, -signal.SIGTERM)


def test_without_an_evaluator_the_program_says_so_and_fails() -> None:
    answers, errors = run([{"id": "a"}], "--backend", "imaginary", status=1)
    assert all("imaginary" in answer["error"] for answer in answers)
    assert "imaginary" in errors


def test_a_setting_out_of_range_is_wrong_usage() -> None:
    assert "searches" in command("analysis", "--searches", "-1", status=2).stderr
