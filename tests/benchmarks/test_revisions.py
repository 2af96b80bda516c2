"""benchmarks/revisions/revisions.py: commits by any name, and the working tree as it lies there."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.revisions.revisions import Repository, RevisionError
from tests.benchmarks.projects import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_commit_is_found_by_any_name_of_git(project: Project) -> None:
    first = project.commit("First", "1")
    second = project.commit("Second", "2")
    project.git("tag", "v1", first)
    with Repository(project.folder) as repository:
        for name in (first, first[:7], "v1", "HEAD~1"):
            assert repository.commit(name).commit == first
        found = repository.commit("HEAD")
    assert (found.commit, found.subject, found.changed) == (second, "Second", False)
    assert found.name == second[:8]


def test_an_unknown_commit_is_an_error_that_says_where_commits_are(project: Project) -> None:
    project.commit("First", "1")
    with (
        Repository(project.folder) as repository,
        pytest.raises(RevisionError, match=r"nowhere is no commit.*git log"),
    ):
        repository.commit("nowhere")


def test_a_name_that_looks_like_a_flag_is_an_unknown_commit(project: Project) -> None:
    project.commit("First", "1")
    with Repository(project.folder) as repository, pytest.raises(RevisionError, match="is no commit"):
        repository.commit("--all")


def test_a_folder_without_history_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(RevisionError, match="is not a git checkout"):
        Repository(tmp_path)


def test_an_unchanged_working_tree_is_its_commit(project: Project) -> None:
    project.commit("First", "1")
    with Repository(project.folder) as repository:
        assert repository.working_tree() == repository.commit("HEAD")


def test_the_working_tree_is_taken_as_it_lies_there(project: Project, tmp_path: Path) -> None:
    project.write("*.log", ".gitignore")
    project.write("gone", "removed")
    commit = project.commit("First", "old")
    project.write("new")
    project.write("not added", "added")
    project.write("noise", "noise.log")
    (project.folder / "removed").unlink()
    with Repository(project.folder) as repository:
        revision = repository.working_tree()
        repository.write_files(revision, tmp_path / "written")
    assert revision.changed
    assert revision.commit == commit
    assert revision.name == f"{commit[:8]}+changes"
    written = {path.name: path.read_text() for path in (tmp_path / "written").iterdir()}
    assert written == {".gitignore": "*.log", "wavefront.py": "new", "added": "not added"}


def test_the_repository_is_left_as_it_was(project: Project, tmp_path: Path) -> None:
    project.commit("First", "old")
    project.write("new")
    before = (project.git("status", "--porcelain"), project.git("count-objects"))
    with Repository(project.folder) as repository:
        repository.write_files(repository.working_tree(), tmp_path / "written")
    assert (project.git("status", "--porcelain"), project.git("count-objects")) == before


def test_the_files_of_an_earlier_commit_are_written(project: Project, tmp_path: Path) -> None:
    first = project.commit("First", "old")
    project.commit("Second", "new")
    with Repository(project.folder) as repository:
        repository.write_files(repository.commit(first), tmp_path / "written")
    assert (tmp_path / "written" / "wavefront.py").read_text() == "old"
