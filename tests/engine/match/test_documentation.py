"""What docs/matches.md promises: its flags exist and its examples say what they print."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine.commands.match import add_arguments
from tests.paths import REPOSITORY

TEXT = (REPOSITORY / "docs" / "matches.md").read_text("utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_its_flags_exist() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    known = {flag for action in parser._actions for flag in action.option_strings}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", TEXT))
    assert len(named) >= 10
    assert named <= known


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_its_python_examples_print_what_they_say(example: str, tmp_path: Path) -> None:
    players = '[[player]]\nname = "a"\n[[player]]\nname = "b"\n'
    (tmp_path / "match.toml").write_text(
        'games = 2\n[defaults]\nbackend = "random"\nnodes = 2\n[adjudication]\nmax_moves = 10\n' + players,
        "utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-c", example],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    for comment in re.findall(r"# (.+)$", example, re.MULTILINE):
        assert comment in done.stdout
