# SPDX-License-Identifier: GPL-3.0-or-later
"""Which session the onnx backend computes a batch with."""

import subprocess
import sys
from contextlib import ExitStack

import pytest

from evaluator.backends.onnx import backend as module
from evaluator.backends.onnx.backend import PAIRED_SECONDS, OnnxBackend
from evaluator.network.random_network import random_network


def test_next_batch_expects_company_after_two_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(module, "perf_counter", lambda: now)
    with OnnxBackend(random_network("tiny-attention"), threads=2) as backend:
        with backend.chosen_session() as alone:
            pass
        with ExitStack() as batches:
            batches.enter_context(backend.chosen_session())
            paired = batches.enter_context(backend.chosen_session())
            now += 10 * PAIRED_SECONDS  # However long they take.
        assert paired is not alone
        with backend.chosen_session() as session:
            assert session is paired
        now += 2 * PAIRED_SECONDS
        with backend.chosen_session() as session:
            assert session is alone


def test_opening_keeps_the_callers_arithmetic() -> None:
    """onnxruntime switches subnormal numbers off in the thread that makes a process's first session."""
    program = """
from sys import float_info
from evaluator.backends.onnx.backend import OnnxBackend
from evaluator.network.random_network import random_network
smallest = float_info.min
with OnnxBackend(random_network("tiny-attention"), threads=2):
    print(smallest / 2 > 0.0)
"""
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "True\n"
