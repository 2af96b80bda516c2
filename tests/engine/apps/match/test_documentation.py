# SPDX-License-Identifier: GPL-3.0-or-later
"""What docs/how-to/matches.md promises: its examples say what they print."""

import re
from pathlib import Path

import pytest

from tests.paths import REPOSITORY
from tests.programs import python

TEXT = (REPOSITORY / "docs" / "how-to" / "matches.md").read_text("utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.integration
@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_its_python_examples_print_what_they_say(example: str, tmp_path: Path) -> None:
    players = '[[player]]\nname = "a"\n[[player]]\nname = "b"\n'
    (tmp_path / "match.toml").write_text(
        'games = 2\n[defaults]\nbackend = "random"\nnodes = 2\n[adjudication]\nmax_moves = 10\n' + players,
        "utf-8",
    )
    done = python(example, cwd=tmp_path)
    for comment in re.findall(r"# (.+)$", example, re.MULTILINE):
        assert comment in done.stdout
