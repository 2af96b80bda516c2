# SPDX-License-Identifier: GPL-3.0-or-later
"""What a network says of a shard's positions, as the shard keeps it."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from engine.selfplay.shard import Shard, ShardError
from evaluator.network import network_file
from training.errors import TrainingError

NAT_STEPS = 16
"""Steps of a nat in which a policy is kept: 3 % of a move's share at most, a byte for each move."""


def prior_identity(prior: str) -> str:
    """SHA-256 of a prior as settings name it: a file, a shipped network, or empty. Raises TrainingError."""
    if not prior:
        return ""
    try:
        with network_file(prior).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise TrainingError(f"cannot read the network {prior}: {error.strerror}") from None


def annotated(
    shard: Shard,
    network: str,
    logits: NDArray[np.float32],
    wdl: NDArray[np.float32],
    start: NDArray[np.int64],
) -> Shard:
    """The shard with what a network says of its rows.

    network: its SHA-256. logits: [m] of all legal moves, row after row, those of row i from start[i] on.
    wdl: [rows, 3]. Raises ShardError if the network's numbers are not finite.
    """
    if not (np.isfinite(logits).all() and np.isfinite(wdl).all()):
        raise ShardError("the network's policy or W D L of a position is not finite")
    counts = np.diff(start)
    largest = np.maximum.reduceat(logits, start[:-1]) if len(counts) else logits
    shifted = logits - np.repeat(largest, counts)
    total = np.add.reduceat(np.exp(shifted), start[:-1]) if len(counts) else logits
    nats = np.repeat(np.log(total), counts) - shifted
    columns = {
        **shard.columns,
        "prior": np.minimum(np.rint(NAT_STEPS * nats), 255).astype(np.uint8),
        "prior_wdl": np.ascontiguousarray(wdl.T.astype(np.float16)),
    }
    return replace(shard, columns=columns, annotated_by=network)
