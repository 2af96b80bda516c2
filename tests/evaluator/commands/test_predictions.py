# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of `kernels --predict`: every phase can be told from the others in a terminal of 80 columns."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from evaluator.commands import predictions
from evaluator.gpu.model.cards import CARDS
from evaluator.gpu.model.prediction import Phase, Prediction
from evaluator.gpu.model.timing import Timing, Traffic

_LABELS = ("encoder.qkv.of_norm", "encoder.smolgen.compress.of_norm", "encoder.attention")


def _printed(width: int) -> str:
    """What is printed of a batch with phases of the longest names that there are."""
    shares = {"matrix unit": 0.45}
    timing = Timing(562.5, 500.0, "matrix unit", 1e9, Traffic(weights=1e6, data=1e6), shares, 4)
    phases = tuple(Phase(label, "gemm direct 256x128x32", timing, 15) for label in _LABELS)
    out = io.StringIO()
    console = Console(file=out, width=width, markup=False, highlight=False)
    predictions._print(console, CARDS["mi300x"], "t82", [Prediction(256, phases)])
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 100, 200])
def test_nothing_is_cut(width: int) -> None:
    text = _printed(width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for label in _LABELS:  # a long one may go on in the next line
        assert label[:16] in text and label[-4:] in text, text
    assert text.count("256x128x32") == len(_LABELS)
    assert text.count("matrix unit") >= len(_LABELS)


def test_a_wide_terminal_has_what_it_was_computed_from() -> None:
    assert "FLOP/byte" in _printed(200) and "FLOP/byte" not in _printed(80)
