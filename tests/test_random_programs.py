# SPDX-License-Identifier: GPL-3.0-or-later
"""The cores under random use, in programs built with sanitizers: tests/**/fuzz*.cc."""

import sys
from pathlib import Path

import pytest

from engine._core import SearchParams
from engine.options import Options
from engine.search.player.tree import search_params
from tests.fuzzing import built, numbers_of
from tests.paths import REPOSITORY
from tests.programs import run

ENGINE, EVALUATOR, WIRE = (REPOSITORY / name / "core" for name in ("engine", "evaluator", "protocol"))
TREE = [f"engine/core/{group}/*.cc" for group in ("chess", "encoding", "mate", "syzygy", "tree")]
CONNECTIONS = [f"protocol/core/{group}/*.cc" for group in ("header", "zmtp")]
LOOP = ["evaluator/core/device_batch.cc", "evaluator/core/request.cc", "evaluator/core/device_loop/*.cc"]
MEMORY, THREADS = "address,undefined", "thread"
SHIPPED = {
    "transposition_visits": 16,
    "subtree_value_bias": 0.6,
    "value_choice_share": 0.2,
    "value_choice_deviations": 2.0,
    "solves_endings": True,
}
"""Options' defaults that differ from the core's, as in set_shipped_defaults of engine/core/tree/fuzz.cc."""

pytestmark = [
    pytest.mark.sanitized,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(sys.platform != "linux", reason="sanitizers and sockets are those of Linux"),
]


def program(path: Path, main: str, patterns: list[str], includes: list[Path], sanitizers: str) -> Path:
    sources = [source for pattern in patterns for source in sorted(REPOSITORY.glob(pattern))]
    return built(path / "fuzz", [*sources, REPOSITORY / "tests" / main], includes, sanitizers)


@pytest.mark.parametrize(
    ("main", "patterns", "includes", "sanitizers", "rounds", "kinds"),
    [
        ("engine/core/tree/fuzz.cc", TREE, [ENGINE], MEMORY, 60, 17),
        *(
            (main, patterns, includes, sanitizers, rounds, kinds)
            for main, patterns, includes, rounds, kinds in (
                ("engine/core/exchange/fuzz.cc", [*TREE, "engine/core/exchange/*.cc"], [ENGINE, WIRE], 60, 6),
                ("evaluator/core/device_loop/fuzz.cc", LOOP, [EVALUATOR, WIRE], 40, 8),
                ("protocol/core/fuzz.cc", [], [WIRE], 1000, 6),
            )
            for sanitizers in (MEMORY, THREADS)
        ),
    ],
)
def test_core_is_correct_under_random_use(
    main: str,
    patterns: list[str],
    includes: list[Path],
    sanitizers: str,
    rounds: int,
    kinds: int,
    tmp_path: Path,
) -> None:
    patterns = [*patterns, *(CONNECTIONS if WIRE in includes else [])]
    fuzz = program(tmp_path, main, patterns, includes, sanitizers)
    assert len(numbers_of(fuzz, rounds, seed=1)) == kinds


def test_no_file_breaks_a_tree(tmp_path: Path) -> None:
    fuzz = program(tmp_path, "engine/core/tree/fuzz_file.cc", TREE, [ENGINE], MEMORY)
    done = run(fuzz, 60, 1, tmp_path, timeout=None)
    assert done.stderr == ""
    refused, loaded = (int(word) for word in done.stdout.split()[1::2])
    assert min(refused, loaded) > 20


def test_the_shipped_defaults_are_among_the_settings_tried() -> None:
    core = SearchParams()
    shipped = search_params(Options(), core.input_format)
    names = [name for name in dir(core) if not name.startswith("_") and not name.endswith("_bytes")]
    differing = {
        name: getattr(shipped, name) for name in names if getattr(shipped, name) != getattr(core, name)
    }
    assert differing == pytest.approx(SHIPPED)
