# SPDX-License-Identifier: GPL-3.0-or-later
"""Annotations that are not finite are refused."""

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.apps.shards.shard import Shard, ShardError
from tests.training.labels import labelled_shard
from training.config import DataSettings, TargetSettings
from training.data.annotations import annotated
from training.data.reading import table_of

NOT_FINITE = [np.nan, np.inf, -np.inf]


def outputs(shard: Shard) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]]:
    """Return logits, W D L and move starts of a network without an opinion."""
    start = table_of(shard, DataSettings(), TargetSettings(), input_format=1).move_start
    return np.zeros(start[-1], np.float32), np.full((len(start) - 1, 3), 1 / 3, np.float32), start


@pytest.mark.parametrize("wrong", NOT_FINITE)
@pytest.mark.parametrize("output", [0, 1], ids=["policy", "wdl"])
def test_annotation_is_refused_when_an_output_is_not_finite(output: int, wrong: float) -> None:
    shard = labelled_shard(2, 10)
    logits, wdl, start = outputs(shard)
    annotated(shard, "a", logits, wdl, start)
    (logits, wdl)[output].flat[7] = wrong
    with pytest.raises(ShardError, match="not finite"):
        annotated(shard, "a", logits, wdl, start)
