# SPDX-License-Identifier: GPL-3.0-or-later
"""The examples of the Python API's reference run as they are printed."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests.paths import REPOSITORY
from tests.programs import run

PAGE = (REPOSITORY / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.integration
@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_the_examples_run(example: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = (sys.executable, "-W", "error", "-c", example)
    done = run(*command, cwd=REPOSITORY, env={**os.environ, "PATH": path})
    assert done.stdout and not done.stderr


def test_every_form_of_the_api_has_an_example() -> None:
    for name in ("Engine(", "asyncio.to_thread(", "popen_uci("):
        assert any(name in example for example in EXAMPLES), name
