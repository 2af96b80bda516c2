"""The marks of tests: what is left out by default is not quick either, and what is named as slow is there."""

from __future__ import annotations

import re
import tomllib

from tests.conftest import NOT_BY_DEFAULT, NOT_QUICK, TESTS
from tests.paths import REPOSITORY


def test_what_is_left_out_by_default_is_not_quick() -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]
    left_out = set(re.findall(r"not (\w+)", settings["ini_options"]["addopts"]))
    assert left_out
    assert left_out <= NOT_BY_DEFAULT


def test_every_folder_and_file_that_is_not_quick_is_there() -> None:
    assert [name for name in NOT_QUICK if not (TESTS / name).exists()] == []
