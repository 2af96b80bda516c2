# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs start in any environment: of an AppImage, of another Python, of a container without a home."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from evaluator.backends.common import caching
from evaluator.devices.opening.calibration import latency_model
from evaluator.settings import DeviceSettings
from protocol.common.folders import cache_folder, config_folder, expanded, user_names
from protocol.common.keys.credentials import credentials_for
from protocol.common.keys.notation import KeysError
from protocol.common.processes import child_command
from protocol.connections.addresses import runtime_directory
from tests import programs
from tests.evaluator.service.echo import EchoBackend
from tests.paths import CACHE, REPOSITORY

PACKAGES = ("engine", "evaluator", "protocol", "training")
LAUNCHER = REPOSITORY / "wavefront_launcher.py"
PROGRAMS = ("wavefront", "wavefront-evaluator", "wavefront-training")

SPAWNING = """
import multiprocessing, sys, engine.work
def main():
    process = multiprocessing.get_context("spawn").Process(target=engine.work.work)
    process.start()
    process.join()
    return process.exitcode
"""


def run(command: list[str], data: str = "", **changed: str) -> subprocess.CompletedProcess[str]:
    return programs.run(*command, status=None, input=data, env={**os.environ, **changed})


@pytest.fixture
def shadows(tmp_path: Path) -> Path:
    """A folder with modules that have the names of our packages, and raise when they are imported."""
    folder = tmp_path / "shadows"
    for name in PACKAGES:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("raise ImportError('the wrong module')\n")
    return folder


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with the launcher, and with a package next to it that starts a process by multiprocessing."""
    folder = tmp_path / "installed"
    (folder / "engine").mkdir(parents=True)
    shutil.copy(LAUNCHER, folder)
    (folder / "engine" / "__init__.py").write_text("")
    (folder / "engine" / "work.py").write_text("def work():\n    print('worked', flush=True)\n")
    (folder / "engine" / "spawning.py").write_text(SPAWNING)
    return folder


@pytest.mark.parametrize("how", ["by its path", "by its name"])
def test_modules_on_pythonpath_do_not_shadow_the_packages(shadows: Path, installed: Path, how: str) -> None:
    by_path = [str(installed / LAUNCHER.name)]
    launcher = by_path if how == "by its path" else ["-m", LAUNCHER.stem]
    paths = os.pathsep.join(map(str, (shadows, installed)))
    done = run([sys.executable, "-S", "-P", *launcher, "engine.spawning"], PYTHONPATH=paths)
    assert (done.returncode, done.stdout) == (0, "worked\n"), done.stderr


def test_child_ignores_the_environment_when_its_parent_does() -> None:
    code = "from protocol.common.processes import child_command; print(child_command('engine'))"
    command = [sys.executable, "-E", "-c", f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); {code}"]
    assert "'-E', '-P'" in run(command).stdout
    assert child_command("engine", "perft")[1:] == ["-P", str(LAUNCHER), "engine", "perft"]


def sources_with(pattern: str) -> set[str]:
    """Modules of the packages whose text has a pattern."""
    return {
        path.relative_to(REPOSITORY).as_posix()
        for name in PACKAGES
        for path in (REPOSITORY / name).rglob("*.py")
        if re.search(pattern, path.read_text("utf-8"))
    }


def test_one_module_makes_the_command_lines_of_children() -> None:
    assert sources_with(r"sys\.executable") == {"protocol/common/processes.py"}


def test_one_module_asks_for_the_users_folders_and_names() -> None:
    wanted = r"platformdirs|expanduser|Path\.home\(|getpass|\bpwd\b"
    assert sources_with(wanted) == {"protocol/common/folders.py"}


# -- the console scripts ----------------------------------------------------------------------------------


@pytest.fixture(params=PROGRAMS)
def script(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A console script, behind a link as pipx makes it."""
    path = Path(sys.executable).with_name(request.param)
    if os.name != "posix" or not path.exists():
        pytest.skip("the programs are not installed next to this Python")
    folder = tmp_path / "links"
    folder.mkdir()
    (folder / "first").symlink_to(path)
    (folder / "second").symlink_to("first")
    return str(folder / "second")


def test_script_starts_in_the_environment_of_an_appimage(script: str, shadows: Path, tmp_path: Path) -> None:
    image = tmp_path / "image"
    for library in ("libstdc++.so.6", "libz.so.1", "libpython3.so"):
        image.joinpath("usr", "lib").mkdir(parents=True, exist_ok=True)
        (image / "usr" / "lib" / library).write_bytes(b"")
    stdlib = image / "usr" / "python"
    stdlib.mkdir()
    (stdlib / "argparse.py").write_text("raise ImportError('of another Python')\n")
    wrong = {
        "PYTHONHOME": str(image / "usr"),
        "PYTHONPATH": os.pathsep.join(map(str, (stdlib, shadows))),
        "PYTHONPLATLIBDIR": "nowhere",
        "PYTHONHASHSEED": "nonsense",
        "PYTHONMALLOC": "nonsense",
        "PYTHONUTF8": "nonsense",
        "PYTHONIOENCODING": "nonsense",
        "PYTHONINSPECT": "1",
        "APPDIR": str(image),
        "LD_LIBRARY_PATH": str(image / "usr" / "lib"),
    }
    done = run([script, "--help"], **wrong)
    assert done.returncode == 0, done.stderr
    assert "usage: wavefront" in done.stdout


def test_a_search_runs_in_the_environment_of_an_appimage(shadows: Path) -> None:
    path = Path(sys.executable).with_name("wavefront")
    if not path.exists():
        pytest.skip("the programs are not installed next to this Python")
    done = run(
        [str(path), "--backend", "random"],
        "go nodes 5\n",
        PYTHONHOME="/nonexistent",
        PYTHONPATH=str(shadows),
        LD_LIBRARY_PATH="/tmp/.mount_none/usr/lib",
    )
    assert done.stdout.splitlines()[-1].startswith("bestmove "), done.stderr


# -- folders ----------------------------------------------------------------------------------------------


@pytest.mark.integration
@pytest.mark.skipif(not hasattr(os, "getuid"), reason="Windows has no sockets in folders")
@pytest.mark.parametrize("name", ["a #1 %41 ü [x]", "ü" * 40], ids=["signs", "long"])
def test_an_engine_searches_with_any_name_of_the_temporary_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    engine = [sys.executable, str(REPOSITORY / "run_engine.py"), "--backend", "random"]
    done = run(engine, "go nodes 5\n", TMPDIR=str(folder), XDG_RUNTIME_DIR="")
    assert done.stdout.splitlines()[-1].startswith("bestmove "), done.stdout + done.stderr


def test_unusable_runtime_folder_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wavefront").write_text("not a folder")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert tmp_path not in runtime_directory().parents


@pytest.fixture
def no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user of whom the system knows nothing but the number."""

    pwd = pytest.importorskip("pwd", reason="Windows has no table of users")

    def unknown(user: int | str) -> None:
        raise KeyError(f"no user {user}")

    for variable in ("HOME", CACHE, "XDG_CONFIG_HOME", "LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(pwd, "getpwnam", unknown)
    monkeypatch.setattr(caching, "_logged", set())


@pytest.mark.usefixtures("no_home")
def test_a_user_without_a_home_has_no_folders_and_no_name() -> None:
    assert cache_folder() is None
    assert config_folder() is None
    assert expanded("~/tables") == Path("~/tables")
    assert expanded("~nobody/tables") == Path("~nobody/tables")
    assert user_names() == set()


@pytest.mark.usefixtures("no_home")
def test_without_a_home_nothing_is_cached_and_one_line_says_so(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        _, save = latency_model(EchoBackend(), "hash", DeviceSettings(calibration_s=0.05))
        save()
    (record,) = caplog.records
    assert "no cache" in record.getMessage()


@pytest.mark.parametrize("use", ["name", "read", "write"])
def test_unusable_cache_folder_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, use: str
) -> None:
    monkeypatch.setattr(caching, "_logged", set())
    monkeypatch.setattr("evaluator.devices.opening.calibration.others_share", lambda *_: 0.0)
    (tmp_path / "file").write_text("not a folder")
    blocked = tmp_path / "cache" / "wavefront" / "latency"
    if use == "read":
        (tmp_path / "cache" / "wavefront").mkdir(parents=True)
        blocked.symlink_to(blocked)
    elif use == "write":
        (tmp_path / "cache" / "wavefront").mkdir(parents=True)
        blocked.write_text("not a folder")
    monkeypatch.setenv(CACHE, str(tmp_path / ("file" if use == "name" else "cache")))
    for _ in range(2):
        _, save = latency_model(EchoBackend(), "hash", DeviceSettings(calibration_s=0.05))
        save()
    assert [
        "no cache" in record.getMessage() for record in caplog.records if record.levelname == "WARNING"
    ] == [True]


@pytest.mark.usefixtures("no_home")
def test_only_encrypted_addresses_need_keys_without_a_home(tmp_path: Path) -> None:
    assert credentials_for("tcp://gpu:5577") == ("tcp://gpu:5577", None)
    with pytest.raises(KeysError, match="--keys"):
        credentials_for(f"tcp://gpu:5577#{'ab' * 32}")
    assert credentials_for(f"tcp://gpu:5577#{'ab' * 32}", tmp_path)[1] is not None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("command", "line"),
    [
        (["engine", "--backend=random"], "uci"),
        (["engine", "analysis", "--backend=random"], '{"id": "a", "nodes": 1}'),
        (["engine", "evaluate", "--backend=random"], '{"fen": "startpos"}\n' * 4000),
        (["engine", "play", "--backend=random", "--nodes=1"], "e4"),
        (["evaluator", "serve", "--embedded", "--backend=random"], ""),
    ],
)
def test_programs_keep_their_input_private(command: list[str], line: str, tmp_path: Path) -> None:
    # On Windows a call that asks for the state of a pipe blocks while another thread reads it.
    with programs.started(*child_command(*command), cwd=tmp_path) as process:
        assert process.stdout is not None
        programs.say(process, line + "\n")
        assert process.stdout.readline()
        assert Path(f"/proc/{process.pid}/fd/0").readlink() == Path(os.devnull)
        process.communicate(timeout=60)
