# SPDX-License-Identifier: GPL-3.0-or-later
"""What is remembered of processes that a driver ended, and when a device is excluded for it."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evaluator.backends.common import crashes
from evaluator.backends.common.crashes import Crash, Phase
from protocol.common.processes import CRASHES_VARIABLE
from tests.paths import CACHE

DEVICE = "Discrete|gfx1100|HIP 7.15"

if sys.platform == "win32":
    pytest.skip("there are no such signals", allow_module_level=True)

CRASHES = [signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE]

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv(CACHE, str(tmp_path))
    return tmp_path / "wavefront" / "crashes"


def end_by(number: int, *entered: tuple[str, Phase], ended: tuple[str, ...] = ()) -> None:
    """A process that enters phases with subjects, ends some, and gets a signal."""
    source = f"""
import os, signal
from evaluator.backends.common import crashes
crashes.record_crashes()
attempts = {{}}
for subject, phase in {[(subject, str(phase)) for subject, phase in entered]!r}:
    if subject in attempts:
        attempts[subject].enter(crashes.Phase(phase))
    else:
        attempts[subject] = crashes.OpeningAttempt(subject, crashes.Phase(phase))
for subject in {ended!r}:
    attempts[subject].end()
os.kill(os.getpid(), {number})
"""
    done = subprocess.run([sys.executable, "-c", source], check=False, timeout=60)
    assert done.returncode == -number


@pytest.mark.parametrize("number", CRASHES)
def test_one_crash_while_a_device_is_opened_excludes_it(number: signal.Signals) -> None:
    end_by(number, (DEVICE, Phase.OPENING))
    crash = crashes.excluded(DEVICE)
    assert crash is not None
    assert (crash.signal, crash.phase) == (number.name, Phase.OPENING)
    assert "opened" in str(crash)


@pytest.mark.parametrize(("continued", "excluded"), [(False, True), (True, False)])
def test_windows_fault_excludes_device_unless_survived(folder: Path, continued: bool, excluded: bool) -> None:
    """faulthandler also reports faults there that the program handles."""
    entered = {"id": 1, "subject": DEVICE, "phase": "opened", "at": time.time()}
    lines = [json.dumps(entered), "Windows fatal exception: access violation", "", "Current thread 0x1:"]
    lines += [json.dumps({**entered, "phase": "used"})] * continued
    folder.mkdir(parents=True)
    (folder / "0-0.log").write_text("\n".join(lines) + "\n")
    crash = crashes.excluded(DEVICE)
    assert (crash is not None) == excluded
    assert crash is None or "access violation" in str(crash)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_end_by_others_excludes_nothing_and_leaves_no_file(number: int, folder: Path) -> None:
    end_by(number, (DEVICE, Phase.OPENING))
    assert crashes.excluded(DEVICE) is None
    assert not [*folder.glob("*")]


def test_used_device_is_excluded_by_the_second_crash_in_a_day() -> None:
    end_by(signal.SIGSEGV, (DEVICE, Phase.OPENING), (DEVICE, Phase.USING))
    assert crashes.excluded(DEVICE) is None
    end_by(signal.SIGABRT, (DEVICE, Phase.OPENING), (DEVICE, Phase.USING))
    crash = crashes.excluded(DEVICE)
    assert crash is not None
    assert (crash.signal, crash.phase) == ("SIGABRT", Phase.USING)


def test_crashes_in_use_days_apart_exclude_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    days = [Crash(DEVICE, Phase.USING, now - day * 25 * 3600, "SIGABRT") for day in (0, 1, 2)]
    monkeypatch.setattr(crashes, "crashes", lambda: days)
    assert crashes.excluded(DEVICE) is None
    monkeypatch.setattr(crashes, "crashes", lambda: [*days, Crash(DEVICE, Phase.TUNING, now - 60, "SIGBUS")])
    assert crashes.excluded(DEVICE) is not None


def test_other_devices_and_versions_are_not_excluded() -> None:
    end_by(signal.SIGABRT, (DEVICE, Phase.OPENING))
    assert crashes.excluded(DEVICE.replace("7.15", "7.16")) is None


def test_a_device_that_is_closed_is_not_blamed() -> None:
    end_by(signal.SIGABRT, (DEVICE, Phase.OPENING), ("other", Phase.OPENING), ended=(DEVICE,))
    assert crashes.excluded(DEVICE) is None
    assert crashes.excluded("other") is not None


def test_a_device_that_is_opened_is_blamed_before_one_in_use() -> None:
    end_by(signal.SIGABRT, (DEVICE, Phase.USING), ("other", Phase.OPENING))
    assert [crash.subject for crash in crashes.crashes()] == ["other"]


def test_devices_open_in_turn_when_one_has_crashed() -> None:
    end_by(signal.SIGABRT, (DEVICE, Phase.OPENING), ("other", Phase.OPENING))
    assert crashes.excluded(DEVICE) is None and crashes.excluded("other") is None
    source = f"""
import os, signal, threading
from evaluator.backends.common.crashes import OpeningAttempt, Phase, record_crashes
record_crashes()
attempt = OpeningAttempt({DEVICE!r}, Phase.OPENING)

def open_other():
    OpeningAttempt("other", Phase.OPENING)
    os.kill(os.getpid(), signal.SIGABRT)

other = threading.Thread(target=open_other)
other.start()
other.join(0.5)  # It waits.
attempt.enter(Phase.USING)
other.join()
"""
    done = subprocess.run([sys.executable, "-c", source], check=False, timeout=60)
    assert done.returncode == -signal.SIGABRT
    assert crashes.excluded(DEVICE) is None
    assert crashes.excluded("other") is not None


def test_records_are_forgotten_on_request() -> None:
    end_by(signal.SIGABRT, (DEVICE, Phase.OPENING))
    crashes.forget()
    assert crashes.excluded(DEVICE) is None


def test_parents_folder_is_used_without_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(CACHE, str(tmp_path / "file"))
    monkeypatch.setenv(CRASHES_VARIABLE, str(tmp_path / "of-parent"))
    end_by(signal.SIGABRT, (DEVICE, Phase.OPENING))
    assert crashes.excluded(DEVICE) is not None
    assert [*(tmp_path / "of-parent").iterdir()]


@pytest.mark.parametrize(
    "text", ["", "{", "null\n[]\n", "\x00" * 100, '{"id": 1, "phase": "x"}\n', "Fatal Python error: "]
)
def test_damaged_records_say_nothing(folder: Path, text: str) -> None:
    folder.mkdir(parents=True)
    (folder / "1-2.log").write_text(text + "\nFatal Python error: Aborted\n")
    (folder / "x.log").write_text(text)
    assert crashes.crashes() == []


def test_a_childs_crash_is_recorded_by_its_parent() -> None:
    crashes.add(DEVICE, Phase.TRYING, "SIGABRT")
    crash = crashes.excluded(DEVICE)
    assert crash is not None
    assert (crash.signal, crash.phase) == ("SIGABRT", Phase.TRYING)
