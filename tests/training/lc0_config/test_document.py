# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of YAML and of the text format that lc0's configurations use are read; the rest is named."""

from __future__ import annotations

import pytest

from training.lc0_config.document import DocumentError, parse_textproto, parse_yaml


def test_yaml_of_mappings_lists_and_scalars() -> None:
    text = """%YAML 1.2
---
name: 'a # b'   # a comment
gpu: 0
dataset:
    num_chunks: 1800000
    input: "/data/*/"

training:
  lr_values:
    - 0.2
    - 2e-2
  lr_boundaries:
  - 5000
  swa: true
  empty:
  inline: [1, 2.5, x]
..."""
    assert parse_yaml(text) == {
        "name": "a # b",
        "gpu": 0,
        "dataset": {"num_chunks": 1800000, "input": "/data/*/"},
        "training": {
            "lr_values": [0.2, 0.02],
            "lr_boundaries": [5000],
            "swa": True,
            "empty": None,
            "inline": [1, 2.5, "x"],
        },
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\n  b: 2", "line 2"),
        ("a: 1\na: 2", "a is there twice"),
        ("a:\n\tb: 1", "line 2: a tab"),
        ("&x a", "line 1: not understood"),
        ("- 1", "keys and values are needed"),
    ],
)
def test_yaml_that_is_not_understood_is_named(text: str, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        parse_yaml(text)


def test_the_text_format() -> None:
    text = """
    name: "a" 'b'  # joined
    model { defaults: < compute_dtype: F32 > heads: -3 rate: 1.5e-7 on: true }
    stage { a: 1 } stage { b: [1, 2] }
    lr: 1 lr: [2, 3];
    """
    assert parse_textproto(text) == {
        "name": "ab",
        "model": {"defaults": {"compute_dtype": "F32"}, "heads": -3, "rate": 1.5e-7, "on": True},
        "stage": [{"a": 1}, {"b": [1, 2]}],
        "lr": [1, 2, 3],
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a {\n b: 1", "line 2: } is missing"),
        ("a: 1\n}", "line 2: } closes nothing"),
        ("a", "a has no value"),
        ("a:", "a has no value"),
        ("a: 1\n: 2", "line 2: the name of a field"),
    ],
)
def test_text_that_is_not_understood_is_named(text: str, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        parse_textproto(text)
