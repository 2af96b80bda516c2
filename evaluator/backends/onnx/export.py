# SPDX-License-Identifier: GPL-3.0-or-later
"""Exports a network as an ONNX file for other programs."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from google.protobuf.message import EncodeError

from evaluator.backends.onnx.model import build_model
from evaluator.network.errors import NetworkError
from evaluator.network.spec import NetworkSpec


def export_onnx(network: NetworkSpec, path: str | PathLike[str]) -> None:
    """Write the network with its chosen heads as an ONNX model of standard operators.

    Input: `planes` float32 [n, 112, 8, 8]; outputs as in `build_model`. The metadata has the network's name,
    SHA-256, input format and heads. Raises OSError, and NetworkError for a network too large for one ONNX
    file (2 GiB).
    """
    try:
        data = build_model(network, packed=False).SerializeToString()
    except (EncodeError, ValueError):
        raise NetworkError("the network is larger than the 2 GiB that an ONNX file can hold") from None
    Path(path).write_bytes(data)
