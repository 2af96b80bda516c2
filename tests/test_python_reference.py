# SPDX-License-Identifier: GPL-3.0-or-later
"""The examples of the Python API's reference run as they are printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import REPOSITORY

PAGE = (REPOSITORY / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.integration
@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_the_examples_run(example: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        cwd=REPOSITORY,
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert done.stderr == ""


def test_every_form_of_the_api_has_an_example() -> None:
    for name in ("Engine(", "asyncio.to_thread(", "popen_uci("):
        assert any(name in example for example in EXAMPLES), name
