# SPDX-License-Identifier: GPL-3.0-or-later
"""Workers unpickle jobs of these tests, which an installed program does not find."""

import pytest

from tests.paths import REPOSITORY


@pytest.fixture(autouse=True)
def _tests_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
