# SPDX-License-Identifier: GPL-3.0-or-later
"""Cache file of the measurements on a device.

The file's key has device, multiprocessors, driver, precision and code (the kernels, the modules that choose,
the libraries' versions). Inside, a product is identified by its shape and fused operations, not by its
network. So the hundreds of networks of a training run share their measurements, and networks of other shapes
add theirs.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evaluator.backends.common.caching import cached_file, keep
from evaluator.backends.gpu.blas.library import Library
from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.compiler import KERNELS, source
from evaluator.backends.gpu.driver.device import DeviceInfo
from evaluator.backends.gpu.driver.target import Precision
from evaluator.backends.gpu.plan.hopper import HopperTile
from evaluator.backends.gpu.plan.tiles import Choice, Measured, Tile
from evaluator.network.spec import Activation

log = logging.getLogger(__name__)

_GPU = Path(__file__).resolve().parents[1]

_CODE = (
    *("blas/cublaslt", "blas/hipblas", "blas/hipblaslt", "blas/library", "blas/product"),
    *("plan/builder", "plan/hopper", "plan/quantised", "plan/tiles"),
    *("plan/products/epilogue", "plan/products/gemm"),
    *("plan/products/gemm_hopper", "plan/products/launches", "plan/products/product_use"),
    "plan/products/tensor_maps",
    *("tuning/bench", "tuning/cache", "tuning/samples", "tuning/shortlist", "tuning/tune"),
)
"""Modules that determine the meaning of a cached choice."""


def path_of(info: DeviceInfo, precision: Precision, libraries: Sequence[Library]) -> Path | None:
    """Return the file for a device with these libraries and this code; None without a cache."""
    # A partition of an MI300X has the name of the whole card.
    parts = [info.name, str(info.multiprocessors), info.driver, info.target.name, precision.value]
    parts += [library.version for library in libraries]
    parts += [source(path.stem) for path in sorted(KERNELS.glob("gemm*.hip"))]
    parts += [source("rows")]
    parts += [(_GPU / f"{name}.py").read_text("utf-8") for name in _CODE]
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
    return cached_file("gemm", f"{digest}.json")


def read(path: Path) -> dict[Product, list[Measured]]:
    """Return the contents of a file; empty if it is missing or damaged."""
    try:
        entries = json.loads(path.read_text("utf-8"))
        return {
            _product(entry["product"]): [_measured(each) for each in entry["choices"]] for entry in entries
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def write(path: Path, known: dict[Product, list[Measured]]) -> None:
    """Replace a file. A failure is logged."""
    entries = [
        {
            "product": asdict(product) | {"activation": product.activation.value},
            "choices": [
                asdict(each.choice)
                | {"algorithm": each.choice.algorithm.hex(), "us": round(each.microseconds, 2)}
                for each in measured
            ],
        }
        for product, measured in known.items()
    ]
    keep(path, json.dumps(entries).encode())


def _product(fields: dict[str, Any]) -> Product:
    # Files of older versions have fields that are gone; their value is null for all products that remain.
    given = {name: value for name, value in fields.items() if value is not None}
    return Product(**given | {"activation": Activation(fields["activation"])})


def _measured(fields: dict[str, Any]) -> Measured:
    tile, hopper = fields["tile"], fields["hopper"]
    choice = Choice(
        tile=None if tile is None else Tile(**tile),
        splits=fields["splits"],
        algorithm=bytes.fromhex(fields["algorithm"]),
        library=fields["library"],
        fused=fields["fused"],
        packed=fields["packed"],
        hopper=None if hopper is None else HopperTile(**hopper),
    )
    return Measured(choice, fields["us"])
