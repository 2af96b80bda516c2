"""benchmarks/revisions/history.py: runs are measured, kept, listed and plotted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.revisions import history
from benchmarks.revisions.environments import Environments
from benchmarks.revisions.history import Run, Value
from benchmarks.revisions.machine import Machine
from benchmarks.revisions.measuring import guarded
from benchmarks.revisions.revisions import Repository, Revision
from tests.benchmarks.projects import SUITE, Project, no_warm_up, program

MACHINE = Machine("A processor", 4, "Linux 6", "3.12.1")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kept" / "history.jsonl"


def a_run(commit: str = "ab", date: str = "2026-01-02", machine: Machine = MACHINE) -> Run:
    figures = {"search": Value("nodes/s in process", True, 500.0, 400.0, 600.0)}
    return Run(
        "2026-01-03T10:20:30+00:00", machine, Revision(commit * 20, "cd" * 20, "A change", date), 5, figures
    )


def record(project: Project, file: Path, *words: str) -> int:
    arguments = history.parse([*words, "--file", str(file)])

    def work() -> int:
        with Repository(project.folder) as repository:
            folder = project.folder.parent / "environments"
            environments = Environments(repository, folder, install=project.install)
            return history.record(arguments, repository, environments, SUITE, warm_up=no_warm_up)

    return guarded("history.py", work)


def test_the_working_tree_is_measured_and_kept(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = Project(tmp_path)
    commit = project.commit("The first", program(speed=100))
    project.write(program(speed=120, start=30))
    assert record(project, file, "--rounds", "2") == 0
    [run] = history.read(file)
    assert (run.revision.commit, run.revision.changed, run.rounds) == (commit, True, 2)
    assert run.figures["speed"] == Value("nodes/s", True, 120, 120, 120)
    assert run.figures["start"] == Value("ms to uciok", False, 30, 30, 30)
    assert f"{commit[:8]}+changes" in capsys.readouterr().out


def test_several_commits_are_measured_at_once(tmp_path: Path, file: Path) -> None:
    project = Project(tmp_path)
    commits = [project.commit(f"Number {speed}", program(speed=speed)) for speed in (100, 200)]
    assert record(project, file, *commits, "--rounds", "1", "--figures", "speed") == 0
    runs = history.read(file)
    assert [run.revision.commit for run in runs] == commits
    assert [{name: value.median for name, value in run.figures.items()} for run in runs] == [
        {"speed": 100},
        {"speed": 200},
    ]


def test_what_fails_is_not_kept(tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = Project(tmp_path)
    project.commit("The first", "import sys; sys.exit('no engine')")
    assert record(project, file, "--rounds", "1") == 2
    assert not file.exists()
    assert "no engine" in capsys.readouterr().err


def test_runs_are_appended_and_read_as_they_were(file: Path) -> None:
    history.append(file, [a_run("ab")])
    history.append(file, [a_run("cd"), a_run("ef")])
    assert history.read(file) == [a_run("ab"), a_run("cd"), a_run("ef")]


def test_a_line_that_was_cut_off_spoils_no_other(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history.append(file, [a_run("ab"), a_run("cd")])
    file.write_text(file.read_text()[:-20])
    history.append(file, [a_run("ef")])
    assert history.read(file) == [a_run("ab"), a_run("ef")]
    assert f"{file}, line 2: not a run" in capsys.readouterr().err


def test_the_list_keeps_machines_apart(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history.append(file, [a_run("ab"), a_run("cd", machine=Machine("Another", 8, "Linux 6", "3.12.1"))])
    assert history.main(["--list", "--file", str(file)]) == 0
    printed = capsys.readouterr().out
    first, second = printed.split("Another, 8 cores")
    assert "A processor, 4 cores" in first
    assert "2026-01-03 10:20  abababab  A change" in first
    assert "nodes/s in process" in first
    assert "cdcdcdcd" in second
    assert "cdcdcdcd" not in first


def test_a_plot_is_drawn(file: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    history.append(file, [a_run("ab", "2026-01-02"), a_run("cd", "2026-01-01")])
    image = tmp_path / "history.png"
    assert history.main(["--plot", str(image), "--file", str(file)]) == 0
    assert image.read_bytes().startswith(b"\x89PNG")


def test_a_plot_of_an_unknown_kind_is_an_error(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    history.append(file, [a_run()])
    assert history.main(["--plot", str(tmp_path / "history.xyz"), "--file", str(file)]) == 2
    assert "history.xyz" in capsys.readouterr().err


def test_a_plot_of_figures_that_no_run_has_is_an_error(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    history.append(file, [a_run()])
    words = ["--plot", str(tmp_path / "history.png"), "--file", str(file), "--figures", "uciok"]
    assert history.main(words) == 2
    assert "none of the runs has these figures" in capsys.readouterr().err


def test_without_matplotlib_a_plot_says_what_brings_it(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    history.append(file, [a_run()])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert history.main(["--plot", str(tmp_path / "history.png"), "--file", str(file)]) == 2
    assert "pip install '.[plot]'" in capsys.readouterr().err


def test_an_empty_history_says_how_it_begins(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert history.main(["--list", "--file", str(file)]) == 2
    assert f"{file} has no runs" in capsys.readouterr().err
