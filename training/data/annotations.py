# SPDX-License-Identifier: GPL-3.0-or-later
"""A network's policy and WDL of a shard's positions, as stored in the shard."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from engine.apps.shards import Shard, ShardError, share_bytes, wdl_bytes
from evaluator.network import network_file
from protocol.common.printing import failing_as
from training.errors import TrainingError

EXACT_NATS, MOST_NATS = 4, 8
"""-log of a search's policy is stored in quarters below the first, in whole nats up to the second. That takes
half of the bytes, and diverges by 0.006 nats; a search of 100 nodes finds out 0.16."""


def identity(network: str, nodes: int = 0) -> str:
    """Return the name of annotations. network: its SHA-256. nodes: of searches; 0: the network alone."""
    return f"{network} {nodes} nodes" if nodes else network


def usable(annotations: str, prior: str, nodes: int) -> bool:
    """Return True if a run uses a shard's annotations: those named `prior`, or searches of at least `nodes`
    nodes by any network, since each of them knows more than the network alone."""
    if not prior or not nodes:
        return bool(prior) and annotations == prior
    count, _, unit = annotations.partition(" ")[2].partition(" ")
    return unit == "nodes" and int(count) >= nodes


def prior_identity(prior: str, nodes: int = 0) -> str:
    """Return the name of a prior's annotations. prior: a file, a shipped network, or "". nodes: of searches;
    0: the network alone. Raises TrainingError."""
    if not prior:
        return ""
    with (
        failing_as(TrainingError, f"cannot read the network {prior}"),
        network_file(prior).open("rb") as file,
    ):
        return identity(hashlib.file_digest(file, "sha256").hexdigest(), nodes)


def annotated(
    shard: Shard,
    network: str,
    logits: NDArray[np.float32],
    wdl: NDArray[np.float32],
    start: NDArray[np.int64],
) -> Shard:
    """Return the shard with a network's evaluations of its rows.

    network: its SHA-256, or `identity` of its searches. logits: [m] of all legal moves, row after row, those
    of row i from start[i] on. wdl: [rows, 3]. Raises ShardError for values that are not finite.
    """
    if not (np.isfinite(logits).all() and np.isfinite(wdl).all()):
        raise ShardError("the network's policy or W D L of a position is not finite")
    counts = np.diff(start)
    largest = np.maximum.reduceat(logits, start[:-1]) if len(counts) else logits
    shifted = logits - np.repeat(largest, counts)
    total = np.add.reduceat(np.exp(shifted), start[:-1]) if len(counts) else logits
    nats = np.repeat(np.log(total), counts) - shifted
    if " " in network:  # of searches
        nats = np.where(nats < EXACT_NATS, np.round(4 * nats) / 4, np.minimum(np.round(nats), MOST_NATS))
    columns = {
        **shard.columns,
        "prior": share_bytes(nats),
        "prior_wdl": wdl_bytes(wdl),
    }
    return replace(shard, columns=columns, annotated_by=network)
