# SPDX-License-Identifier: GPL-3.0-or-later
"""Virtual environments of project revisions, built alike and kept in the user's cache.

An environment is named after the hash of its revision's files and the Python version, so that the same
sources are built once. It is rebuilt for another CPU (the cores are compiled for it), another Python or other
compiler flags, and if it is incomplete or files are missing. Each has a cache folder for engine and
evaluator, because two revisions that share one might invalidate each other's entries at every start.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import platformdirs
import psutil

from benchmarks.common.installation import Installation, own_variables
from benchmarks.common.processes import CommandError, output_of, started
from benchmarks.common.progress import Progress
from benchmarks.revisions.machine import this_machine
from benchmarks.revisions.revisions import Repository, Revision

KEPT = 6
"""Number of most recently used environments to keep."""

LOG_LINES = 15
"""Lines of a failed build's log in the message."""

_COMPILER_VARIABLES = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CMAKE_ARGS")
_MANIFEST = "environment.json"

_LIST_PACKAGES = (
    "import importlib.metadata, json\n"
    "found = importlib.metadata.distributions()\n"
    "print(json.dumps({one.name: one.version for one in found if not one.read_text('direct_url.json')}))\n"
)
"""Prints name and version of all packages, except those installed from a folder."""


class BuildError(Exception):
    """An environment could not be built. The message has the end of the log and its path."""


def pip_install(python: Path, source: Path) -> list[str]:
    """Return the command that installs a folder of sources for an interpreter without pip."""
    if importlib.util.find_spec("pip") is None:
        raise BuildError(f"{sys.executable} has no pip, which builds environments: run python -m ensurepip")
    flags = ["--no-input", "--disable-pip-version-check"]
    return [sys.executable, "-m", "pip", "--python", str(python), "install", *flags, str(source)]


@dataclass(frozen=True, slots=True)
class Environment:
    """A complete environment. packages: versions of the installed packages except the project."""

    folder: Path
    revision: Revision
    packages: Mapping[str, str]

    @property
    def installation(self) -> Installation:
        programs = _programs(self.folder)
        return Installation(
            name=self.revision.name,
            engine=[str(programs / "wavefront")],
            evaluator=[str(programs / "wavefront-evaluator")],
            python=[str(programs / "python"), "-P"],
            folder=self.folder / "run",
            variables={"XDG_CACHE_HOME": str(self.folder / "cache")},
        )


class Environments:
    """The environments in one folder."""

    def __init__(
        self,
        repository: Repository,
        folder: Path | None = None,
        *,
        install: Callable[[Path, Path], Sequence[str]] = pip_install,
    ) -> None:
        """install: returns the command that installs sources, given an interpreter and their folder."""
        cache = Path(platformdirs.user_cache_dir("wavefront", False))
        self.folder = folder or cache / "environments"
        self._repository = repository
        self._install = install

    def get(self, revision: Revision, progress: Progress, *, rebuild: bool = False) -> Environment:
        """Return the environment of a revision, built if there is no valid one. Raises BuildError."""
        folder = self.folder / f"{revision.tree[:16]}-py{sys.version_info.major}.{sys.version_info.minor}"
        self.folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder.with_suffix(".lock")):
            wanted = _conditions(revision)
            fault = "a new one was asked for" if rebuild else _fault(folder, wanted)
            if fault:
                progress.step(f"building {revision.name} ({fault})")
                packages = self._make(folder, revision, wanted, progress)
            else:
                progress.step(f"{revision.name} is built already")
                packages = json.loads((folder / _MANIFEST).read_text())["packages"]
                os.utime(folder / _MANIFEST)
        return Environment(folder, revision, packages)

    def remove_old(self, keep: int = KEPT) -> None:
        """Remove all but the most recently used environments."""
        made = [path for path in self.folder.glob("*-py*") if path.is_dir()]
        made.sort(key=_last_used, reverse=True)
        for folder in made[keep:]:
            with contextlib.suppress(BuildError), _alone(folder.with_suffix(".lock")):
                shutil.rmtree(folder)

    def _make(
        self, folder: Path, revision: Revision, conditions: Mapping[str, object], progress: Progress
    ) -> dict[str, str]:
        if folder.exists():
            shutil.rmtree(folder)
        source = folder / "source"
        source.mkdir(parents=True)
        (folder / "run").mkdir()
        (folder / "cache").mkdir()
        self._repository.write_files(revision, source)
        venv.create(folder / "venv", symlinks=os.name != "nt")
        python = _programs(folder) / "python"
        log = folder / "build.log"
        _run_logged(self._install(python, source), folder, log, progress)
        command = [str(python), "-P", "-c", _LIST_PACKAGES]
        try:
            told = output_of(command, folder=folder / "run", environment=own_variables())
        except CommandError as error:
            raise BuildError(str(error)) from error
        packages: dict[str, str] = json.loads(told)
        shutil.rmtree(source)
        manifest = {**conditions, "packages": packages, "files": _fingerprint(folder / "venv")}
        unfinished = folder / f"{_MANIFEST}.new"
        unfinished.write_text(json.dumps(manifest, indent=1))
        unfinished.replace(folder / _MANIFEST)  # last: without it an environment is incomplete
        return packages


def changed_packages(old: Environment, new: Environment) -> list[str]:
    """Return packages whose versions differ between two environments, as "numpy 1.0 and 2.0"."""
    names = sorted({*old.packages, *new.packages})
    pairs = [(name, old.packages.get(name, "none"), new.packages.get(name, "none")) for name in names]
    return [f"{name} {before} and {after}" for name, before, after in pairs if before != after]


def _conditions(revision: Revision) -> dict[str, object]:
    """Return the conditions of an environment; it is rebuilt when one changes."""
    machine = asdict(this_machine())
    flags = {name: value for name, value in sorted(os.environ.items()) if name in _COMPILER_VARIABLES}
    return {
        "tree": revision.tree,
        "python": sys.version,
        "processor": machine["processor"],
        "compiler_variables": flags,
    }


def _fault(folder: Path, wanted: Mapping[str, object]) -> str:
    """Return why the environment in a folder is invalid; empty if it is valid."""
    if not folder.exists():
        return "for the first time"
    try:
        manifest = json.loads((folder / _MANIFEST).read_text())
    except (OSError, ValueError):
        return "again, since the last time it did not come to its end"
    changed = [name.replace("_", " ") for name, value in wanted.items() if manifest.get(name) != value]
    if changed:
        return f"again, for another {' and '.join(changed)}"
    if manifest.get("files") != _fingerprint(folder / "venv"):
        return "again, since files of it are missing or changed"
    for name in ("run", "cache"):
        (folder / name).mkdir(exist_ok=True)
    return ""


def _fingerprint(folder: Path) -> str:
    """Return a hash of names and sizes of all files, except those that Python compiles itself."""
    digest = hashlib.sha256()
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(files):
            path = Path(where, name)
            size = path.stat().st_size if path.exists() else -1
            digest.update(f"{path.relative_to(folder)}\0{size}\0".encode())
    return digest.hexdigest()


def _run_logged(command: Sequence[str], folder: Path, log: Path, progress: Progress) -> None:
    """Run a command, and log and show its output."""
    with log.open("w", encoding="utf-8") as written:
        written.write(f"$ {' '.join(command)}\n")
        with started(
            command, folder=folder, environment=own_variables(), stderr=subprocess.STDOUT, time_limit=3600
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                written.write(line)
                written.flush()
                progress.detail(line.strip())
            code = process.wait()
    if code:
        last = log.read_text(encoding="utf-8").rstrip().splitlines()[-LOG_LINES:]
        message = "\n".join(f"  {line}" for line in last)
        raise BuildError(f"the build ended with exit code {code}:\n{message}\nThe whole log: {log}")


def _programs(folder: Path) -> Path:
    return folder / "venv" / ("Scripts" if os.name == "nt" else "bin")


def _last_used(folder: Path) -> float:
    manifest = folder / _MANIFEST
    return manifest.stat().st_mtime if manifest.exists() else 0.0


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold a lock file with this process's id, created atomically.
    Raises BuildError if another running process holds it."""
    with tempfile.NamedTemporaryFile("w", dir=lock.parent, prefix=f"{lock.name}-") as own:
        own.write(str(os.getpid()))
        own.flush()
        while True:
            try:
                os.link(own.name, lock)
                break
            except FileExistsError:
                with contextlib.suppress(FileNotFoundError):
                    holder = int(lock.read_text())
                    if psutil.pid_exists(holder):
                        raise BuildError(
                            f"process {holder} builds the same environment now; wait for it (or, if that is "
                            f"something else, remove {lock})"
                        ) from None
                    lock.unlink()
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
