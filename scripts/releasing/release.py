# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the files of a release for x86-64: sdist, wheels, archives for Linux and Windows, hashes.

Zig's clang compiles everything native for glibc 2.28: the files run wherever manylinux_2_28 wheels do. Run it
as scripts/release, which installs the tools. windows.py makes the files for Windows, and
`.github/workflows/release.yml` those for other systems.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import sys
import sysconfig
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import windows
from backports import zstd
from common import CACHE, LOCK, PAGES, PROGRAMS, ROOT, UNUSED, make_compilers, run, say
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

PYTHON = "3.13"
"""Of the archive. Its wheel serves every CPython from 3.12 on."""

OTHER_PYTHONS = ("3.11",)
"""Older ones, which need wheels of their own; made if this machine has them."""

GLIBC = (2, 28)
MOST_BYTES = {".whl": 60 << 20, ".zst": 180 << 20}
EXTRAS = ("backports.zstd>=1,<2", "cuda-bindings>=13,<14", "nvidia-ml-py>=12,<14", "rapidgzip>=0.14,<1")
"""Packages of the archive besides the wheel's. NVRTC comes from the system's CUDA."""

SOURCE = re.compile(r"(<!-- where it comes from -->\n).*\n")
"""Line of README.md with the project's address."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/release", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("version", metavar="VERSION")
    parser.add_argument(
        "--output", type=Path, default=ROOT / "dist", help="folder for the files (default: dist)"
    )
    parser.add_argument(
        "--url", help="only write this address of the repository, its releases and issues into the files"
    )
    parser.add_argument(
        "--for-wine",
        action="store_true",
        help="only make the zip for Windows of this tree, with a numpy that Wine 8 can load",
    )
    arguments = parser.parse_args()
    output, version = arguments.output.resolve(), arguments.version
    if arguments.url:
        write_url(arguments.url.rstrip("/"))
        return 0
    if arguments.for_wine:
        output.mkdir(parents=True, exist_ok=True)
        windows.make(version, output, "numpy<2")
        return 0
    check_version(version)
    check_url()
    check_tree()
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)

    compilers = make_compilers()
    say("CPython")
    python = make_python(compilers)
    say("source distribution")
    sdist = make_sdist(output)
    wheels = []
    for interpreter in (python, *other_pythons()):
        say(f"wheel, built by {interpreter}")
        wheels.append(make_wheel(interpreter, sdist, compilers, output))
    say("archive")
    archive = make_archive(python, wheels[0], version, output)
    windows.make(version, output)
    say("checks")
    check_archive(archive)
    write_hashes(output)
    print_commands(version, output)
    return 0


def check_version(version: str) -> None:
    """End with an error unless version file and CHANGELOG name the version."""
    declared = re.search(r'__version__ = "(.+)"', (ROOT / "protocol/common/version.py").read_text("utf-8"))
    if declared is None or declared[1] != version:
        sys.exit(f"error: protocol/common/version.py says {declared and declared[1]}, not {version}")
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE):
        sys.exit(f"error: CHANGELOG.md has no heading `## [{version}] - YYYY-MM-DD`")
    if re.search(r"^- ", changelog.partition("## [Unreleased]")[2].partition("\n## [")[0], re.MULTILINE):
        sys.exit("error: CHANGELOG.md has entries under [Unreleased]: move them under the version")


def check_tree() -> None:
    """End with an error unless the working tree is the commit: what a release has, its tag must have."""
    changed = run("git", "status", "--porcelain")
    if changed:
        sys.exit(f"error: commit, ignore or remove these files first:\n{changed}")


def write_url(url: str) -> None:
    """Write the address of the project into pyproject.toml and README.md."""
    tables = {"Repository": url, "Releases": f"{url}/releases", "Issues": f"{url}/issues"}
    lines = "".join(f'{name} = "{address}"\n' for name, address in tables.items())
    project = ROOT / "pyproject.toml"
    text = re.sub(
        r"^\[project\.urls\]\n(?:\w+ = .*\n)*\n", "", project.read_text("utf-8"), flags=re.MULTILINE
    )
    place = "[project.optional-dependencies]"
    project.write_text(text.replace(place, f"[project.urls]\n{lines}\n{place}", 1), "utf-8")
    readme = ROOT / "README.md"
    links = ", ".join(f"[{name.lower()}]({address})" for name, address in tables.items())
    readme.write_text(re.sub(SOURCE, rf"\g<1>{links}\n", readme.read_text("utf-8"), count=1), "utf-8")
    print("pyproject.toml and README.md name the project's address: commit them, then make the release")


def check_url() -> None:
    """End with an error unless pyproject.toml and README.md name the same address."""
    declared = re.search(r'^Repository = "(.+)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    named = re.search(SOURCE, (ROOT / "README.md").read_text("utf-8"))
    if declared is None or named is None or f"({declared[1]})" not in named[0]:
        sys.exit("error: no address of the project: scripts/release VERSION --url https://… writes it")


def make_python(environment: dict[str, str]) -> Path:
    """Build CPython, unless that was done, and return the program."""
    folder = CACHE / f"python-{PYTHON}"
    program = folder / "bin" / f"python{PYTHON}"
    if not program.exists():
        run(ROOT / "scripts" / "releasing" / "python.sh", PYTHON, folder, environment=environment)
        shutil.rmtree(f"{folder}.work")
    return program


def other_pythons() -> Iterator[Path]:
    """Yield the programs of OTHER_PYTHONS that are here."""
    for version in OTHER_PYTHONS:
        found = shutil.which(f"python{version}")
        if found:
            yield Path(found)
        else:
            say(f"no wheel for CPython {version}, which is not here")


def make_sdist(output: Path) -> Path:
    """Make the source distribution from the files of the commit."""
    source = CACHE / "source"
    shutil.rmtree(source, ignore_errors=True)
    names = run("git", "ls-files", "-z").split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    run(sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", output, source)
    (sdist,) = output.glob("*.tar.gz")
    return sdist


def make_wheel(python: Path, sdist: Path, environment: dict[str, str], output: Path) -> Path:
    """Build a wheel with an interpreter, and return it with the tag of manylinux."""
    folder = CACHE / "wheels" / python.name
    shutil.rmtree(folder, ignore_errors=True)
    run(python, "-m", "venv", "--without-pip", folder / "venv")
    pip = [sys.executable, "-m", "pip", "--python", folder / "venv" / "bin" / "python"]
    run(*pip, "install", "-q", "cmake>=3.26", "nanobind>=2.4,<4", "ninja>=1.11", "scikit-build-core>=1,<2")
    made = {**environment, "SKBUILD_CMAKE_DEFINE": "WAVEFRONT_WERROR=ON"}
    made["PATH"] = f"{folder / 'venv' / 'bin'}{os.pathsep}{environment['PATH']}"
    run(*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, sdist, environment=made)
    (built,) = folder.glob("*.whl")
    tag = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_x86_64"
    run(
        sys.executable,
        "-m",
        "auditwheel",
        "repair",
        "--plat",
        tag,
        "-w",
        folder / "repaired",
        built,
        environment=made,
    )
    (repaired,) = (folder / "repaired").glob("*.whl")
    return Path(shutil.copy2(repaired, output))


def make_code_objects(python: Path, output: Path) -> Path:
    """Compile the AMD kernels, unless that was done for another archive, and return the file.

    python: one that has Wavefront. clang-19 compiles.
    """
    path = output / "amd-code-objects.zip"
    if not path.exists():
        start = "import runpy, sys; sys.path += sys.argv.pop(1).split(':')\n"
        start += "runpy.run_module('scripts.code_objects', run_name='__main__')"
        modules = f"{ROOT}:{sysconfig.get_path('purelib')}"
        kept = {**os.environ, "WAVEFRONT_TEST_CACHE": str(CACHE / "code-objects")}
        run(python, "-P", "-c", start, modules, path, environment=kept, folder=CACHE)
    return path


def make_archive(python: Path, wheel: Path, version: str, output: Path) -> Path:
    """Make a folder that needs nothing installed, and compress it."""
    name = f"wavefront-{version}-linux-x86_64"
    folder = CACHE / "archive" / name
    shutil.rmtree(folder.parent, ignore_errors=True)
    shutil.copytree(
        python.parents[1],
        folder / "python",
        symlinks=True,
        ignore=shutil.ignore_patterns(*UNUSED),
    )
    inside = folder / "python" / "bin" / python.name
    for other in inside.parent.iterdir():
        if other != inside:
            other.unlink()
    run("strip", "--strip-unneeded", inside)
    uv = [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", inside, "-c", LOCK, "-b", LOCK]
    # python-chess is published as source only.
    run(*uv, "--only-binary=:all:", "--no-binary=chess", wheel, *EXTRAS)
    shutil.copy2(
        make_code_objects(inside, output),
        next(folder.glob("python/lib/python*/site-packages/evaluator/backends/gpu/kernels")),
    )
    # Next to the archive, since it names the files inside.
    run(
        Path(sys.executable).parent / "cyclonedx-py",
        "environment",
        inside,
        "-o",
        output / f"{name}.sbom.json",
    )
    for script in inside.parent.iterdir():
        if script != inside and script.name not in PROGRAMS:
            script.unlink()
    for program in PROGRAMS:  # scripts/wavefront.sh finds its Python through the link.
        (folder / program).symlink_to(f"python/bin/{program}")
    for page in filter(None, run("git", "ls-files", "-z", *PAGES).split("\0")):
        (folder / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / page, folder / page)
    # Compiled here: the folder may be read-only where it is used.
    compiled = [inside, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    run(*compiled, folder / "python" / "lib" / f"python{PYTHON}")
    path = output / f"{name}.tar.zst"
    options = {zstd.CompressionParameter.compression_level: 19, zstd.CompressionParameter.nb_workers: 2}
    with zstd.open(path, "wb", options=options) as stream, tarfile.open(fileobj=stream, mode="w|") as tar:
        tar.add(folder, name, filter=without_owner)
    return path


def without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


def check_archive(archive: Path) -> None:
    """Check the sizes and the symbols of what was made, and try the archive in a foreign environment."""
    for path in archive.parent.iterdir():
        most = MOST_BYTES.get(path.suffix)
        print(f"{path.stat().st_size / 1e6:7.1f} MB  {path.name}")
        if most and path.stat().st_size > most:
            sys.exit(f"error: {path.name} has more than {most >> 20} MiB")
    folder = CACHE / "tried"
    shutil.rmtree(folder, ignore_errors=True)
    with zstd.open(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
        tar.extractall(folder, filter="tar")
    (inside,) = folder.iterdir()
    late = {str(path.relative_to(inside)): found for path, found in glibc_of(inside) if found > GLIBC}
    if late:
        sys.exit(f"error: these need a glibc later than {'.'.join(map(str, GLIBC))}: {late}")
    print(f"nothing needs more than glibc {'.'.join(map(str, GLIBC))}")
    (folder / "engine.py").write_text("raise ImportError('a module of the user')\n")
    foreign = {"PATH": "/usr/bin:/bin", "PYTHONHOME": "/nonexistent", "PYTHONPATH": str(folder)}
    print(run(inside / "wavefront", "self-test", environment=foreign, folder=folder))


def glibc_of(folder: Path) -> Iterator[tuple[Path, tuple[int, ...]]]:
    """Yield each ELF file and the latest version of glibc that it needs."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        with path.open("rb") as file:
            if file.read(4) != b"\x7fELF":
                continue
            file.seek(0)
            needed = [(0, 0)]
            for section in ELFFile(file).iter_sections():
                if isinstance(section, GNUVerNeedSection):
                    for _library, versions in section.iter_versions():
                        names = [version.name for version in versions]
                        needed += [
                            tuple(map(int, name.removeprefix("GLIBC_").split(".")))
                            for name in names
                            if re.fullmatch(r"GLIBC_[\d.]+", name)
                        ]
            yield path, max(needed)


def write_hashes(output: Path) -> None:
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(output.iterdir())
    ]
    (output / "SHA256SUMS").write_text("".join(lines))


def print_commands(version: str, output: Path) -> None:
    """Print the commands that publish the files."""
    files: Sequence[str] = [str(path) for path in sorted(output.iterdir())]
    packages = [file for file in files if file.endswith((".whl", ".tar.gz"))]
    print("\nThe files are made and checked. These commands publish them:\n")
    print(f"  git tag -s v{version} -m 'Wavefront {version}' && git push origin v{version}")
    print(f"  gh release create v{version} --title 'Wavefront {version}' {' '.join(files)}")
    print(f"  python -m twine upload {' '.join(packages)}")


if __name__ == "__main__":
    sys.exit(main())
