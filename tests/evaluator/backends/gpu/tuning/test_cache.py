# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of measurements: what they keep, and what older ones may hold."""

import json
from pathlib import Path

from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.plan.tiles import Choice, Measured
from evaluator.backends.gpu.tuning import cache
from evaluator.network.spec import Activation

KNOWN = {Product(64, 128, 256, Activation.MISH): [Measured(Choice(None, 1, b"\x01", "cublaslt"), 3.5)]}


def test_a_file_keeps_its_measurements(tmp_path: Path) -> None:
    cache.write(tmp_path / "kept.json", KNOWN)
    assert cache.read(tmp_path / "kept.json") == KNOWN


def test_a_field_that_is_gone_and_null_does_not_discard_measurements(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    cache.write(path, KNOWN)
    (entry,) = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps([entry | {"product": entry["product"] | {"form": None}}]), "utf-8")
    assert cache.read(path) == KNOWN
    path.write_text(json.dumps([entry | {"product": entry["product"] | {"form": "int8"}}]), "utf-8")
    assert cache.read(path) == {}


def test_a_damaged_file_is_empty(tmp_path: Path) -> None:
    assert cache.read(tmp_path / "missing.json") == {}
    for text in ('[{"product": ', '[{"product": 7, "choices": []}]', "[3]", '{"product": []}', "null"):
        (tmp_path / "damaged.json").write_text(text, "utf-8")
        assert cache.read(tmp_path / "damaged.json") == {}
