# SPDX-License-Identifier: GPL-3.0-or-later
"""A checkout finds the compiled core that fits it, and says what to do when there is none."""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

import pytest

import engine._core as core
import evaluator._core as evaluator_core
import protocol._core as protocol_core
from protocol.common.native import DIGEST_FILE, check_core, installed_core, locate_core, source_digest
from tests.paths import REPOSITORY
from tests.programs import python, run

SUFFIX = importlib.machinery.EXTENSION_SUFFIXES[0]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A package folder with the sources of a core."""
    sources = tmp_path / "checkout" / "somepackage" / "core"
    sources.mkdir(parents=True)
    (sources / "a.h").write_text("int a();\n")
    (sources / "b.cc").write_text("int a() { return 1; }\n")
    (sources / "notes.txt").write_text("no source\n")
    return sources.parent


@pytest.fixture
def installed(tmp_path: Path, checkout: Path) -> Path:
    """The file of a compiled core of the same sources, elsewhere."""
    folder = tmp_path / "site-packages" / "somepackage"
    folder.mkdir(parents=True)
    (folder / f"_core{SUFFIX}").write_bytes(b"")
    (folder / DIGEST_FILE).write_text(source_digest(checkout / "core") + "\n")
    return folder / f"_core{SUFFIX}"


def test_cmake_and_python_compute_the_same_digest() -> None:
    assert source_digest(REPOSITORY / "engine" / "core") == core.CORE_DIGEST
    assert source_digest(REPOSITORY / "evaluator" / "core") == evaluator_core.CORE_DIGEST
    assert source_digest(REPOSITORY / "protocol" / "core") == protocol_core.CORE_DIGEST


def test_a_core_elsewhere_on_the_path_is_found(tmp_path: Path, installed: Path) -> None:
    (tmp_path / "empty").mkdir()
    search_path = [str(tmp_path / "missing"), str(tmp_path / "empty"), str(installed.parent.parent)]
    assert installed_core("somepackage", search_path) == installed
    assert installed_core("somepackage", search_path[:2]) is None


def test_the_package_path_is_extended_to_the_installed_core(
    checkout: Path, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout / "__init__.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(checkout.parent), str(installed.parent.parent), *sys.path])
    package = importlib.util.module_from_spec(importlib.machinery.ModuleSpec("some", None, is_package=True))
    package.__path__.append(str(checkout))
    monkeypatch.setitem(sys.modules, "somepackage", package)
    locate_core("somepackage", package.__path__, checkout)
    assert list(package.__path__) == [str(checkout), str(installed.parent)]
    spec = importlib.util.find_spec("somepackage._core")
    assert spec is not None and spec.origin == str(installed)


def test_a_core_of_other_sources_is_refused(checkout: Path, installed: Path) -> None:
    check_core(installed, checkout / "core")
    (checkout / "core" / "b.cc").write_text("int a() { return 2; }\n")
    with pytest.raises(ImportError, match=r"'pip install \.'"):
        check_core(installed, checkout / "core")


def test_a_core_without_a_digest_is_refused(checkout: Path, installed: Path) -> None:
    (installed.parent / DIGEST_FILE).unlink()
    with pytest.raises(ImportError, match="built from other sources"):
        check_core(installed, checkout / "core")


def test_an_installed_package_has_no_sources_to_compare(tmp_path: Path, installed: Path) -> None:
    check_core(installed, tmp_path / "core")


def test_a_missing_core_is_reported_with_what_to_do(tmp_path: Path) -> None:
    """A copy of the files that look for it stands in for a checkout after `git clone`."""
    for name in (
        "engine/__init__.py",
        "protocol/__init__.py",
        "protocol/common/native.py",
        "protocol/common/version.py",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((REPOSITORY / name).read_text("utf-8"), "utf-8")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import engine"
    done = run(sys.executable, "-I", "-S", "-c", script, status=1)
    assert "ImportError: the compiled core of 'protocol' is missing: run 'pip install .' in" in done.stderr


def test_importing_the_package_does_not_load_the_core() -> None:
    done = python("import sys, engine; print('engine._core' in sys.modules)", cwd=REPOSITORY)
    assert done.stdout == "False\n"
