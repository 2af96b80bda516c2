# SPDX-License-Identifier: GPL-3.0-or-later
"""The README's promises: its Python examples run, and it is short."""

import re

import pytest

from tests.paths import REPOSITORY
from tests.programs import python

pytestmark = pytest.mark.integration

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_the_python_examples_run(example: str) -> None:
    assert python(example, cwd=REPOSITORY).stdout


def test_it_fits_on_a_few_screens() -> None:
    assert len(README.splitlines()) <= 150


def test_the_test_command_is_marked_for_ci() -> None:
    assert README.count("<!-- test command -->\n```sh\n") == 1
