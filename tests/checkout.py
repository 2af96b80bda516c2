# SPDX-License-Identifier: GPL-3.0-or-later
"""A copy of the checkout without what Git does not know: an old build folder must not get into a package."""

import shutil
import subprocess
from pathlib import Path

from tests.paths import REPOSITORY


def copy_checkout(target: Path) -> Path:
    """Copy the files that Git tracks or does not ignore to a folder, and return it."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=REPOSITORY, capture_output=True, check=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (REPOSITORY / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, target / name)
    return target
