# SPDX-License-Identifier: GPL-3.0-or-later
"""Names in left_out.toml: a run under Wine, which is rare, fails on one that has no test."""

import re
from fnmatch import filter as matching

from tests.paths import REPOSITORY
from tests.windows.left_out import _listed


def test_every_entry_names_a_file_or_a_test_of_it() -> None:
    without = []
    for entry in _listed(""):
        name, _, pattern = entry.partition("::")
        file = REPOSITORY / "tests" / name
        tests = (
            re.findall(r"^(?:async )?def (test_\w+)", file.read_text("utf-8"), re.M) if file.is_file() else []
        )
        if not matching(tests, pattern or "*"):
            without.append(entry)
    assert without == []
