# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables of commands on a terminal of 80 columns: rows can be distinguished."""

import io

import pytest
from rich.console import Console

from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.plan.tiles import Choice, Measured
from evaluator.commands import verify
from evaluator.commands.tune import table
from evaluator.network import SHIPPED_NETWORKS
from evaluator.network.spec import Activation


def test_verify_names_networks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    limits = {"logits": 0.1, "logits_of_spread": 0.0, "wdl": 0.01, "best_moves": 0.9}
    errors = {"logits": 0.00012, "spread": 12.0, "wdl": 0.00012, "moves_left": 0.0012}
    moves = {"same_best_move": 1.0, "as_good_a_move": 1.0}
    facts = {"ok": True, "positions": 64, "device": "a device", "limits": limits}
    names = [*SHIPPED_NETWORKS, "a-network-of-a-long-name-1", "a-network-of-a-long-name-2"]
    verify.show_errors([{"network": name, **errors, **moves, **facts} for name in names], False)
    shown = capsys.readouterr().out
    assert all(name in shown for name in SHIPPED_NETWORKS)
    assert "…" not in shown


def test_tune_shows_each_product_in_full() -> None:
    products = [Product(50688, n, 1024, Activation.MISH, residual=True) for n in (256, 2560)]
    libraries = ("hipblaslt", "rocblas")
    choices = [Measured(Choice(None, library=name, algorithm=b"a"), 12345.6) for name in libraries]
    terminal = Console(file=io.StringIO(), width=80)
    terminal.print(table([(product, choices) for product in products]))
    assert isinstance(terminal.file, io.StringIO)
    shown = terminal.file.getvalue()
    assert "50688 x 256 x 1024" in shown and "50688 x 2560 x 1024" in shown
    assert "…" not in shown
