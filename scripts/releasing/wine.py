# SPDX-License-Identifier: GPL-3.0-or-later
"""Try programs for Windows under Wine:

    python -m scripts.releasing.wine prepare FOLDER
    python -m scripts.releasing.wine test FOLDER [ARGUMENT …]

`prepare` fills the folder: the zip, the unpacked archive below a name with a blank and an umlaut, a copy of
its Python with the packages that tests need, and a prefix of Wine. `test` runs the default tests there;
tests/windows/left_out.toml names those that are left out, and why.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

UNPACKED = "Schach ä"
"""Folder of the archive: users' folders have blanks and letters that ASCII lacks."""

PACKAGES = (
    *("hypothesis>=6.100,<7", "jsonschema>=4.20,<5", "packaging>=24", "pytest>=8.2,<10", "pyyaml>=6,<7"),
    *("pytest-timeout>=2.3,<3", "pytest-xdist>=3.6,<4", "websockets>=14,<17", "matplotlib>=3.8,<4"),
    "pip>=24,<27",
    "numpy<2",  # Later ones call ucrtbase.crealf, which Wine 8 lacks.
)

FOR_WINE = """\
import ctypes, pathlib, platform, sys
ctypes.CDLL(str(pathlib.Path(sys.executable).with_name("wine.dll"))).permit_tiles()
platform._uname_cache = platform.uname_result("Windows", "", "10", "10.0.19045", "AMD64")
"""
"""sitecustomize.py of the Python under Wine. See wine.c. Python asks for the name of the system by WMI, which
Wine 8 lacks (propsys.VariantToString), or by `cmd /c ver`, whose output sometimes never ends there."""


def environment(folder: Path) -> dict[str, str]:
    """Return the variables for `wine`: a prefix and a cache of its own."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "WAVEFRONT"))},
        "WINEPREFIX": str(folder / "prefix"),
        "WINEDEBUG": "-all",
        "PYTHONUTF8": "1",
        "WIN_PD_OVERRIDE_LOCAL_APPDATA": "Z:" + str(folder / "cache").replace("/", "\\"),
    }


def archive(folder: Path) -> Path:
    """Return the folder of the unpacked archive."""
    (found,) = (folder / UNPACKED).glob("wavefront-*")
    return found


def prepare(folder: Path) -> None:
    """Make the zip, and fill the folder. What it had is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    version = re.search(
        r'__version__ = "(.+)"', (REPOSITORY / "protocol/common/version.py").read_text("utf-8")
    )
    assert version is not None
    name = f"wavefront-{version[1]}-windows-x86_64"
    run("scripts/release", version[1], "--for-wine", "--output", folder)
    for old in (UNPACKED, "cache", "python"):
        shutil.rmtree(folder / old, ignore_errors=True)
    with zipfile.ZipFile(folder / f"{name}.zip") as file:
        file.extractall(folder / UNPACKED)
    python = archive(folder) / "python"
    tools = REPOSITORY / ".cache" / "release" / "tools" / "bin" / "python"
    compiler = (tools, "-m", "ziglang", "cc", "-target", "x86_64-windows-gnu")
    source = REPOSITORY / "tests" / "windows" / "wine.c"
    run(*compiler, "-shared", "-Os", "-o", python / "wine.dll", source, "-ladvapi32")
    shutil.copyfile(python / "wine.dll", python / "bcryptprimitives.dll")
    (python / "Lib" / "site-packages" / "sitecustomize.py").write_text(FOR_WINE)
    (python / "DLLs" / "_wmi.pyd").unlink()
    shutil.copytree(python, folder / "python")
    windows = ("--python-platform", "x86_64-pc-windows-msvc", "--python-version", "3.12")
    site = ("--target", folder / "python" / "Lib" / "site-packages", "--link-mode", "copy")
    run(tools, "-m", "uv", "pip", "install", "-q", *windows, *site, "--only-binary=:all:", *PACKAGES)
    # Its services would inherit the streams of the first program, and keep pipes open.
    subprocess.run(
        ["wine", "wineboot", "--init"],
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
        start_new_session=True,
    )


def run(*command: str | Path) -> None:
    """Run a program that must succeed."""
    subprocess.run([str(word) for word in command], check=True, cwd=REPOSITORY)


def test(folder: Path, *arguments: str) -> int:
    """Run the default tests, or those that pytest's arguments name, and return the exit status."""
    python = folder / "python" / "python.exe"
    options = ("-q", "-rfE", "-n", "2", "-p", "no:cacheprovider", "-p", "tests.windows.left_out")
    # Python for Windows refuses a Linux file as a standard stream: all of them are pipes.
    with subprocess.Popen(
        ["wine", str(python), "-X", "utf8", "-m", "pytest", *options, *(arguments or ("tests",))],
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
    task, place = sys.argv[1], Path(sys.argv[2]).resolve()
    if task == "test":
        sys.exit(test(place, *sys.argv[3:]))
    prepare(place)
