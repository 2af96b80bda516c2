# SPDX-License-Identifier: GPL-3.0-or-later
"""Exports a trained network as an lc0 file and compares it with the reference."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from evaluator.backends import expand_planes, probe_batch
from evaluator.backends.reference.backend import forward
from evaluator.network import NetworkSpec, load_network, write_network
from protocol.common.printing import failing_as
from training.errors import TrainingError
from training.model.network import AttentionNetwork, policy_source

LOGITS_LIMIT = 1e-4
"""Maximum deviation of PyTorch's float32 logits from the reference, before weights are encoded."""

POSITIONS = 64


@dataclass(frozen=True, slots=True)
class Exported:
    """A written network. logits: maximum difference between PyTorch and the reference, before encoding.
    encoding: maximum difference caused by the file's 16-bit weights."""

    path: Path
    bytes: int
    logits: float
    encoding: float

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.bytes:,} bytes; logits within {self.logits:.1e} of the reference, "
            f"{self.encoding:.1e} by the encoding of weights"
        )


@torch.no_grad()
def export_network(
    network: AttentionNetwork, path: Path, *, policy_temperature: float = 1.0, license: str = ""
) -> Exported:
    """Write a network in lc0's format and verify it.

    policy_temperature: all policy logits are multiplied by it, so that a search with this PolicyTemperature
    has the trained priors. license: licence text for the file.
    Raises TrainingError if the reference's results differ from PyTorch's.
    """
    spec = network.spec(policy_scale=policy_temperature)
    off = compared(network, spec, policy_temperature)
    with failing_as(TrainingError, f"cannot write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_network(spec, path, license=license)
    planes = probe_planes()
    written, expected = forward(load_network(path), planes).policy, forward(spec, planes).policy
    return Exported(path, path.stat().st_size, off, float(np.abs(written - expected).max()))


def int8_told(path: Path) -> str:
    """Return in words how an int8 pass on the CPU changes a network's results."""
    from evaluator.backends import BackendError
    from evaluator.backends.onnx.backend import OnnxBackend

    try:
        with OnnxBackend(load_network(path), threads=1, int8=True) as backend:
            error = backend.quantisation_error
    except BackendError as refusal:
        return str(refusal)
    assert error is not None
    return f"int8 changes logits by {error.logits:.1%} of their spread, value by up to {error.value:.3f}"


def probe_planes() -> NDArray[np.float32]:
    """Return artificial input planes [64, 112, 64]."""
    return expand_planes(probe_batch(POSITIONS, seed=7).positions).astype(np.float32)


@torch.no_grad()
def compared(network: AttentionNetwork, spec: NetworkSpec, scale: float = 1.0) -> float:
    """Return the maximum difference of policy logits between PyTorch, times `scale`, and the reference.

    Raises TrainingError if it exceeds rounding errors.
    """
    planes = probe_planes()
    device = next(network.parameters()).device
    # In full float32: TF32 would exceed the limit.
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    tokens = torch.from_numpy(np.ascontiguousarray(planes.transpose(0, 2, 1))).to(device)
    trained = network(tokens).policy.cpu().numpy()[:, policy_source()] * scale
    torch.set_float32_matmul_precision(precision)
    expected = forward(spec, planes).policy
    off = float(np.abs(trained - expected).max())
    if not off <= LOGITS_LIMIT * max(1.0, float(np.abs(expected).max()) / 10):
        raise TrainingError(f"{spec.name}: PyTorch's logits are {off:.1e} from the reference's: not usable")
    return off
