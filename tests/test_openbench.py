# SPDX-License-Identifier: GPL-3.0-or-later
"""What OpenBench does with the checkout: make a program, move it, read the output of its `bench`."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.checkout import copy_checkout
from tests.paths import CACHE
from tests.programs import run

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(1800)]


def read(output: str) -> tuple[int, int]:
    """Nodes and nodes per second by OpenBench's rules: from the last line upwards, signs are spaces."""
    lines = [re.sub(r"[^a-zA-Z0-9 ]+", " ", line) for line in reversed(output.strip().splitlines())]

    def first(*patterns: str) -> int:
        for line in lines:
            for pattern in patterns:
                if found := re.search(pattern, line, re.IGNORECASE):
                    return int(found[1])
        raise AssertionError(f"no number in {output}")

    nodes = first(r"(\d+)\s+nodes", r"nodes\s+(\d+)", r"nodes searched\s+(\d+)")
    return nodes, first(r"(\d+)\s+nps", r"nps\s+(\d+)", r"nodes second\s+(\d+)")


def test_the_program_is_made_moved_and_benched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    source = copy_checkout(tmp_path / "source")
    network = source / "evaluator" / "networks" / "wavefront-cpu.pb.gz"
    command = ["make", "-j", "EXE=wavefront-12ab", "CXX=g++", f"EVALFILE={network}"]
    subprocess.run(command, cwd=source / "deploy" / "openbench", check=True, timeout=1500)
    program = tmp_path / "wavefront-12ab"
    shutil.move(source / "deploy" / "openbench" / "wavefront-12ab", program)
    shutil.rmtree(source)
    running = [
        subprocess.Popen([program, "bench"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    nodes, speeds = zip(*(read(each.communicate(timeout=60)[0]) for each in running), strict=True)
    assert nodes == (1_200_000, 1_200_000)
    assert min(speeds) > 0
    game = "uci\nposition startpos\ngo nodes 5\nquit\n"
    assert "bestmove" in run(program, input=game).stdout
