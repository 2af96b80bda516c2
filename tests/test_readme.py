# SPDX-License-Identifier: GPL-3.0-or-later
"""The README's promises: its Python examples run, and it is short."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.paths import REPOSITORY

pytestmark = pytest.mark.integration

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_the_python_examples_run(example: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=REPOSITORY, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_it_fits_on_a_few_screens() -> None:
    assert len(README.splitlines()) <= 150


def test_the_test_command_is_marked_for_ci() -> None:
    assert README.count("<!-- test command -->\n```sh\n") == 1
