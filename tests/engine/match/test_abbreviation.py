# SPDX-License-Identifier: GPL-3.0-or-later
"""Shortened names stay different."""

from __future__ import annotations

import pytest

from engine.match.abbreviation import abbreviated


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["a", "b"], ["a", "b"]),
        (["stockfish 17", "wavefront 400"], ["stockfi…", "wavefro…"]),
        (["wavefront cpuct=1", "wavefront cpuct=2"], ["…cpuct=1", "…cpuct=2"]),
        (["a-wavefront-x", "a-wavefront-y", "b-wavefront-x"], ["a-wave…x", "a-wave…y", "b-wave…x"]),
        (["wavefront-a-wavefront", "wavefront-b-wavefront"], ["1 wavef…", "2 wavef…"]),
    ],
)
def test_abbreviated_names_stay_different_when_they_are_cut(names: list[str], short: list[str]) -> None:
    assert abbreviated(names, 8) == short
