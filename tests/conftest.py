"""Marks the quick tests: those that start no program, compile nothing and compute for two seconds at most."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

# A shell starts background jobs with the interrupt ignored, and programs inherit that: those that tests start
# are to be interrupted.
signal.signal(signal.SIGINT, signal.default_int_handler)

TESTS = Path(__file__).parent

NOT_QUICK = (
    "backends/",
    "benchmarks/",
    "emulator/",
    "engine/analysis/test_command.py",
    "engine/analysis/test_documentation.py",
    "engine/analysis/test_scheduler.py",
    "engine/analysis/test_sockets.py",
    "engine/commands/",
    "engine/core/chess/test_fen.py",
    "engine/core/chess/test_game.py",
    "engine/core/chess/test_perft.py",
    "engine/core/chess/test_uci_move.py",
    "engine/core/encoding/test_lc0_encoding.py",
    "engine/core/syzygy/",
    "engine/evaluation/",
    "engine/games/test_openings.py",
    "engine/match/players/",
    "engine/match/results/test_sprt.py",
    "engine/match/test_documentation.py",
    "engine/match/test_games.py",
    "engine/match/test_match_command.py",
    "engine/match/test_resume.py",
    "engine/pool/",
    "engine/search/test_default_search.py",
    "engine/search/test_driver.py",
    "engine/selfplay/test_check.py",
    "engine/selfplay/test_documentation.py",
    "engine/selfplay/test_selfplay.py",
    "engine/selfplay/test_training_record.py",
    "engine/test_api.py",
    "engine/uci/test_conformance.py",
    "engine/uci/test_games.py",
    "engine/uci/test_strange_users.py",
    "engine/uci/test_uci.py",
    "engine/workers/",
    "evaluator/backends/",
    "evaluator/commands/",
    "evaluator/devices/test_loading.py",
    "evaluator/gpu/",
    "evaluator/network/",
    "evaluator/scheduling/test_batching.py",
    "evaluator/service/",
    "protocol/host/",
    "protocol/test_codec.py",
    "protocol/test_conformance.py",
    "test_environments.py",
    "test_privacy.py",
    "test_readme.py",
    "test_wheel.py",
    "training/data/",
    "training/label/test_label.py",
    "training/lc0_config/test_translate.py",
    "training/model/",
    "training/optim/",
    "training/report/",
    "training/run/",
    "training/test_annotate.py",
    "training/test_commands.py",
    "training/test_gate.py",
    "training/test_loop.py",
)
"""Folders and files under tests/ that are not quick. A new file is, until it is named here."""

NOT_BY_DEFAULT = {"slow", "cluster", "gpu", "emulator", "timing", "kernels", "wheel", "sanitized", "soak"}


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        path = item.path.relative_to(TESTS).as_posix()
        markers = {marker.name for marker in item.iter_markers()}
        if not path.startswith(NOT_QUICK) and not markers & NOT_BY_DEFAULT:
            item.add_marker(pytest.mark.quick)
