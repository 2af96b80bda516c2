# SPDX-License-Identifier: GPL-3.0-or-later
"""The golden networks: lc0 files with what lc0 itself computes for them, as test cases.

Five of them, on 32 positions, are in tests/data/lc0; all of them, on 150 positions, in ../shared where
present.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from protocol.batch import POLICY_SIZE, POSITION_DTYPE, PositionBatch
from tests.paths import DATA, SHARED


@dataclass(frozen=True)
class Golden:
    """A network file and lc0's outputs, policy [n, 1858] raw logits, q, d and m [n], for positions [n]."""

    path: Path
    positions: NDArray[np.void]
    policy: NDArray[np.float32]
    q: NDArray[np.float32]
    d: NDArray[np.float32]
    m: NDArray[np.float32]
    policy_head: str | None = None
    value_head: str | None = None


def positions_of(masks: NDArray[np.uint64], rule50: NDArray[np.float32]) -> NDArray[np.void]:
    positions = np.zeros(len(masks), POSITION_DTYPE)
    positions["planes"] = masks
    positions["rule50"] = rule50
    return positions


def all_moves(positions: NDArray[np.void]) -> PositionBatch:
    """A batch that asks for the whole policy vector of every position."""
    count = len(positions)
    return PositionBatch(
        positions,
        np.arange(count + 1, dtype=np.uint32) * np.uint32(POLICY_SIZE),
        np.tile(np.arange(POLICY_SIZE, dtype=np.uint16), count),
    )


@cache
def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    with np.load(path) as archive:
        return dict(archive)


def load_golden(case: str) -> Golden:
    """case: data/NAME, shared/NAME, or shared/NAME/POLICY HEAD/VALUE HEAD."""
    place, name, *heads = case.split("/")
    if place == "data":
        arrays = _arrays(DATA / "lc0" / "golden.npz")
        policy, q, d, m = (arrays[f"{name}/{key}"] for key in ("policy_logits", "q", "d", "m"))
        positions = positions_of(arrays["planes"], arrays["rule50"])
        return Golden(DATA / "lc0" / "nets" / f"{name}.pb.gz", positions, policy, q, d, m)
    folder = SHARED / "lc0_golden"
    if not folder.exists():
        pytest.skip(f"needs {folder}, which is not here")
    entry = next(entry for entry in _shared_networks() if entry["name"] == name)
    inputs = _arrays(folder / "inputs.npz")
    form = f"{entry['input_format']}_fen_only"
    outputs = _arrays(folder / entry["outputs"])
    policy_head, value_head = heads or (None, None)
    policy_key = "policy_logits" if policy_head in (None, "vanilla") else f"policy_logits__{policy_head}"
    suffix = "" if value_head in (None, "winner") else f"__{value_head}"
    positions = positions_of(inputs[f"mask_{form}"], inputs[f"value_{form}"][:, 109])
    policy, q, d, m = (outputs[key] for key in (policy_key, f"q{suffix}", f"d{suffix}", "m"))
    return Golden(folder / entry["file"], positions, policy, q, d, m, policy_head, value_head)


@cache
def _shared_networks() -> list[dict[str, Any]]:
    networks: list[dict[str, Any]] = json.loads((SHARED / "lc0_golden" / "nets.json").read_text())
    return networks


def golden_cases() -> list[str]:
    """Names for `load_golden`, to parametrise with. Where ../shared is absent one case stands for it and
    skips."""
    cases = [f"data/{path.name.removesuffix('.pb.gz')}" for path in sorted((DATA / "lc0/nets").glob("*.gz"))]
    if not (SHARED / "lc0_golden").exists():
        return [*cases, "shared/all"]
    cases += [f"shared/{entry['name']}" for entry in _shared_networks()]
    several = [("optimistic", "q"), ("soft", "st"), ("opponent", "winner")]
    return [*cases, *(f"shared/attn_128x3_multihead/{policy}/{value}" for policy, value in several)]
