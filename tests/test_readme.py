# SPDX-License-Identifier: GPL-3.0-or-later
"""The README's promises: its Python examples run, its commands and flags exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

from tests.paths import REPOSITORY

pytestmark = pytest.mark.integration

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
PROGRAMS = {
    "wavefront": ["run_engine.py"],
    "wavefront-evaluator": ["-m", "evaluator"],
    "wavefront-training": ["-m", "training"],
}
"""How a checkout starts each program."""

COMMANDS = [
    command
    for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
    if (command := line.split("|")[-1].split("#")[0].strip()).split(" ")[0] in PROGRAMS
]


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_the_python_examples_run(example: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=REPOSITORY, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_and_their_flags_exist(command: str) -> None:
    program, subcommand, *words = shlex.split(command)
    done = subprocess.run(
        [sys.executable, *PROGRAMS[program], subcommand, "--help"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    for flag in (word for word in words if word.startswith("--")):
        assert flag in done.stdout


def test_it_fits_on_a_few_screens_and_shows_commands() -> None:
    assert len(README.splitlines()) <= 150
    assert len(COMMANDS) >= 10


def test_the_test_command_is_marked_for_ci() -> None:
    assert README.count("<!-- test command -->\n```sh\n") == 1
