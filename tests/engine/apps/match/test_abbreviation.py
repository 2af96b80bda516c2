# SPDX-License-Identifier: GPL-3.0-or-later
"""Shortened names stay different."""

import pytest

from engine.apps.match.abbreviation import abbreviated


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["a", "b"], ["a", "b"]),
        (["stockfish 17", "wavefront 400"], ["stockfi…", "wavefro…"]),
        (["wavefront cpuct=1", "wavefront cpuct=2"], ["…cpuct=1", "…cpuct=2"]),
        (["a-wavefront-x", "a-wavefront-y", "b-wavefront-x"], ["a-wave…x", "a-wave…y", "b-wave…x"]),
        (["wavefront-a-wavefront", "wavefront-b-wavefront"], ["…a-wave…", "…b-wave…"]),
        (["wavefront cpuct=1.745", "wavefront cpuct=1.9"], ["…t=1.745", "…t=1.9"]),
        (["wavefront-baseline", "wavefront-candidate"], ["…baseli…", "…candid…"]),
        (
            ["wave-a-wavefront-a-wave", "wave-a-wavefront-b-wave", "wave-b-wavefront-a-wave"],
            ["1 wave-…", "2 wave-…", "3 wave-…"],
        ),
    ],
)
def test_abbreviated_names_stay_different_when_they_are_cut(names: list[str], short: list[str]) -> None:
    assert abbreviated(names, 8) == short
