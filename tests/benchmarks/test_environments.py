"""benchmarks/revisions/environments.py: made once, used again, and made again when they are not sound."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.common.progress import Progress
from benchmarks.revisions.environments import BuildError, Environment, Environments, changed_packages
from benchmarks.revisions.revisions import Repository
from tests.benchmarks.projects import Project, program


class Workshop:
    """A project, its repository, and environments of its commits."""

    def __init__(self, folder: Path, repository: Repository, project: Project) -> None:
        self.project = project
        self.repository = repository
        self.folder = folder
        self.environments = Environments(repository, folder, install=project.install)

    def get(self, commit: str, *, rebuild: bool = False) -> Environment:
        return self.environments.get(self.repository.commit(commit), Progress(), rebuild=rebuild)


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    project = Project(tmp_path)
    project.commit("First", program(speed=1))
    with Repository(project.folder) as repository:
        yield Workshop(tmp_path / "environments", repository, project)


def speed(environment: Environment) -> float:
    installation = environment.installation
    value: float = installation.json_of(installation.engine)["speed"]
    return value


def test_an_environment_has_the_program_of_its_commit(workshop: Workshop) -> None:
    first = workshop.repository.commit("HEAD").commit
    workshop.project.commit("Second", program(speed=2))
    assert speed(workshop.get(first)) == 1
    assert speed(workshop.get("HEAD")) == 2


def test_its_commands_have_a_cache_and_a_folder_of_their_own(workshop: Workshop) -> None:
    one = workshop.get("HEAD")
    workshop.project.commit("Second", program(speed=2))
    other = workshop.get("HEAD")
    caches = {each.installation.environment()["XDG_CACHE_HOME"] for each in (one, other)}
    assert len(caches) == 2
    assert all(Path(cache).is_dir() for cache in caches)
    assert list(one.installation.folder.iterdir()) == []


def test_packages_of_elsewhere_are_not_led_into_it(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    assert "PYTHONPATH" not in workshop.get("HEAD").installation.environment()


def test_the_same_sources_are_built_once(workshop: Workshop) -> None:
    first = workshop.get("HEAD")
    workshop.project.commit("The same files under another commit", program(speed=1))
    assert workshop.get("HEAD").folder == first.folder
    assert workshop.project.builds == 1


def test_a_rebuild_can_be_asked_for(workshop: Workshop) -> None:
    workshop.get("HEAD")
    workshop.get("HEAD", rebuild=True)
    assert workshop.project.builds == 2


def test_an_environment_that_lost_a_file_is_made_again(workshop: Workshop) -> None:
    Path(workshop.get("HEAD").installation.engine[0]).unlink()
    assert speed(workshop.get("HEAD")) == 1
    assert workshop.project.builds == 2


def test_an_environment_that_was_never_finished_is_made_again(workshop: Workshop) -> None:
    folder = workshop.get("HEAD").folder
    (folder / "environment.json").unlink()
    assert speed(workshop.get("HEAD")) == 1
    assert workshop.project.builds == 2


@pytest.mark.parametrize("condition", ["processor", "python", "compiler_variables", "tree"])
def test_an_environment_of_other_conditions_is_made_again(workshop: Workshop, condition: str) -> None:
    manifest = workshop.get("HEAD").folder / "environment.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), condition: "another"}))
    workshop.get("HEAD")
    assert workshop.project.builds == 2


def test_a_failed_build_shows_the_end_of_its_log_and_where_the_whole_is(workshop: Workshop) -> None:
    workshop.project.commit("Broken", "compile error")
    with pytest.raises(BuildError, match=r"exit code 1:\n(?s:.*)it does not compile") as failed:
        workshop.get("HEAD")
    log = Path(str(failed.value).rpartition("The whole log: ")[2])
    assert "installing" in log.read_text()
    workshop.project.commit("Mended", program(speed=3))
    assert speed(workshop.get("HEAD")) == 3


def test_a_build_that_failed_is_tried_again(workshop: Workshop) -> None:
    workshop.project.commit("Broken", "compile error")
    for _ in range(2):
        with pytest.raises(BuildError, match="does not compile"):
            workshop.get("HEAD")


def test_two_processes_do_not_build_the_same_at_once(workshop: Workshop) -> None:
    lock = workshop.get("HEAD").folder.with_suffix(".lock")
    lock.write_text(str(os.getppid()))
    with pytest.raises(BuildError, match=f"process {os.getppid()} builds the same"):
        workshop.get("HEAD")


def test_the_lock_of_a_process_that_is_gone_holds_nobody_up(workshop: Workshop) -> None:
    lock = workshop.get("HEAD").folder.with_suffix(".lock")
    gone = os.fork()
    if not gone:
        os._exit(0)
    os.waitpid(gone, 0)
    lock.write_text(str(gone))
    workshop.get("HEAD")
    assert not lock.exists()


def test_only_the_environments_that_were_used_last_stay(workshop: Workshop) -> None:
    made = [workshop.get("HEAD")]
    for number in (2, 3):
        workshop.project.commit(f"Number {number}", program(speed=number))
        made.append(workshop.get("HEAD"))
    for age, environment in enumerate(made):
        os.utime(environment.folder / "environment.json", (1000 - age, 1000 - age))
    workshop.get("HEAD")  # the one that was used longest ago is used again
    workshop.environments.remove_old(keep=2)
    assert [environment.folder.exists() for environment in made] == [True, False, True]


def test_other_versions_of_packages_are_named(workshop: Workshop) -> None:
    old = workshop.get("HEAD")
    new = Environment(old.folder, old.revision, {"numpy": "2.0", "rich": "15"})
    old = Environment(old.folder, old.revision, {"numpy": "1.0", "rich": "15", "onnx": "1.23"})
    assert changed_packages(old, new) == ["numpy 1.0 and 2.0", "onnx 1.23 and none"]
