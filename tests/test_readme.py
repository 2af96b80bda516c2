"""The README's promises: its Python examples run, its commands and flags exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

from tests.paths import REPOSITORY

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = [
    line.split("|")[-1].strip()
    for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
    if "run_engine.py" in line or "-m evaluator" in line
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
    words = shlex.split(command.split("&&")[-1])
    assert words[0] == "python"
    words[0] = sys.executable
    program = next(i for i, word in enumerate(words) if word in ("run_engine.py", "evaluator"))
    done = subprocess.run(
        [*words[: program + 2], "--help"], cwd=REPOSITORY, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    for flag in (word for word in words[program + 2 :] if word.startswith("--")):
        assert flag in done.stdout


def test_the_test_command_is_marked_for_ci() -> None:
    assert README.count("<!-- test command -->\n```sh\n") == 1
