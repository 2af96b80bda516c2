# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the default tests under Wine: python -m tests.windows.under_wine FOLDER [ARGUMENT …]

FOLDER: as filled by tests/windows/prepare.py. left_out.toml names the tests that are left out, and why.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.paths import REPOSITORY
from tests.windows.prepare import environment

OPTIONS = ("-q", "-n", "2", "-p", "no:cacheprovider", "-p", "tests.windows.left_out")


def main(folder: Path, *arguments: str) -> int:
    python = folder / "python" / "python.exe"
    # Python for Windows refuses a Linux file as a standard stream: all of them are pipes.
    with subprocess.Popen(
        ["wine", str(python), "-X", "utf8", "-m", "pytest", *OPTIONS, *(arguments or ("tests",))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=REPOSITORY,
        env=environment(folder),
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
    return process.returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), *sys.argv[2:]))
