# SPDX-License-Identifier: GPL-3.0-or-later
"""The roundings of a network's products to 8 bits, kept so that it opens as quickly as in float32.

Those of the included networks are next to them. Those of others are in the user's cache folder, once the
network was opened in 8 bits. A file that is damaged, or of another network, counts as missing.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evaluator.backends.common.caching import cached_file, keep
from evaluator.backends.onnx.quantisation import Rounding
from evaluator.network import SHIPPED_NETWORKS
from evaluator.network.spec import NetworkSpec


@dataclass(frozen=True, slots=True)
class QuantisationError:
    """Error of int8 on 64 real positions. logits: RMS difference over the standard deviation of the logits.
    value: largest difference of W, D or L (or of the single value)."""

    logits: float
    value: float


def shipped_file(name: str) -> Path:
    """Return the file of an included network's roundings."""
    return SHIPPED_NETWORKS[name].with_name(f"{name}.int8.npz")


Known = tuple[dict[str, Rounding], QuantisationError]
"""The roundings of a network by product, and their error."""


def known_roundings(network: NetworkSpec) -> Known | None:
    """Return a network's roundings, included or cached; None if there are none."""
    if not network.info.path:
        return None
    return included_roundings(network) or _read(_cached(network), network.content_hash)


def included_roundings(network: NetworkSpec) -> Known | None:
    """Return the roundings of an included network; None for others."""
    found = (_read(shipped_file(name), network.content_hash) for name in SHIPPED_NETWORKS)
    return next(filter(None, found), None)


def keep_roundings(network: NetworkSpec, roundings: Mapping[str, Rounding], error: QuantisationError) -> None:
    """Write the roundings of a network that has a file to the cache."""
    if network.info.path:
        keep(_cached(network), encoded(network, roundings, error))


def encoded(network: NetworkSpec, roundings: Mapping[str, Rounding], error: QuantisationError) -> bytes:
    """Return the content of a file."""
    arrays: dict[str, Any] = {
        f"multipliers {name}": rounding.multipliers for name, rounding in roundings.items()
    }
    file = io.BytesIO()
    np.savez_compressed(
        file,
        network=np.array(network.content_hash),
        error=np.array([error.logits, error.value]),
        names=np.array(list(roundings)),
        scales=np.array([rounding.scale for rounding in roundings.values()], np.float32),
        zeros=np.array([rounding.zero for rounding in roundings.values()], np.uint8),
        **arrays,
    )
    return file.getvalue()


def _read(path: Path | None, content_hash: str) -> Known | None:
    if path is None or not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            if str(file["network"]) != content_hash:
                return None
            each = zip(file["names"], file["scales"], file["zeros"], strict=True)
            roundings = {
                str(name): Rounding(file[f"multipliers {name}"], scale, zero) for name, scale, zero in each
            }
            return roundings, QuantisationError(*map(float, file["error"]))
    except Exception:  # zipfile, numpy and zlib raise many kinds for damaged files
        return None


def _cached(network: NetworkSpec) -> Path | None:
    return cached_file("int8", f"{network.content_hash[:32]}.npz")
