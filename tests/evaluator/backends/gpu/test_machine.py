# SPDX-License-Identifier: GPL-3.0-or-later
"""What leaves a machine in a report, and what does not."""

import json
import os
import socket
from pathlib import Path

import pytest

from evaluator.backends.gpu.machine import impersonal, machine_facts


def test_names_and_folders_are_taken_out_of_every_string() -> None:
    names = frozenset({"judit", "castle.example"})
    text = "libhiprtc.so was not found in /home/judit/rocm/lib, C:\\Users\\Judit\\hip\\bin or castle.example"
    found = impersonal({"problem": [text, 3, None, ("of Judit's",)]}, names)
    assert found == {
        "problem": ["libhiprtc.so was not found in .../lib, .../bin or ...", 3, None, ["of ...'s"]]
    }


def test_versions_units_and_devices_stay() -> None:
    names = frozenset({"judit"})
    for text in ("NVIDIA H200/SXM", "positions/s", "HIP 7.1", "gfx1100", "amd:0", "128x128x32 / 2", "4/16"):
        assert impersonal(text, names) == text


def test_the_facts_name_neither_user_nor_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "judit")
    monkeypatch.setenv("LOGNAME", "judit")
    monkeypatch.setattr(socket, "gethostname", lambda: "castle.example")
    monkeypatch.setattr(Path, "home", lambda: Path("/home/judit"))
    monkeypatch.setenv("ROCM_PATH", "/home/judit/rocm-7")
    monkeypatch.setenv("HSA_OVERRIDE_GFX_VERSION", "11.0.0")
    monkeypatch.setenv("SECRET_TOKEN", "castle")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    facts = impersonal(machine_facts())
    text = json.dumps(facts)
    assert "judit" not in text and "castle" not in text
    assert facts["environment"]["HSA_OVERRIDE_GFX_VERSION"] == "11.0.0"
    assert facts["environment"]["ROCM_PATH"] == ".../rocm-7"
    assert facts["threads"] == 6
    assert facts["packages"]["numpy"]
