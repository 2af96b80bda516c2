# SPDX-License-Identifier: GPL-3.0-or-later
"""Checkpoints: the state for resuming a run, in one atomically written file."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

from protocol.common.files import write_atomically
from protocol.common.printing import failing_as
from training.config import LossSettings, ModelSettings, OptimiserSettings
from training.errors import TrainingError
from training.model.initial import initial_network
from training.model.losses import TrainedHeads
from training.model.network import AttentionNetwork
from training.optim.optimiser import Optimiser


def network_of_run(folder: Path, *, last: bool = False) -> AttentionNetwork:
    """Return the network with the mean of a run's weights, or the last weights. Raises TrainingError."""
    saved = load_checkpoint(folder)
    if saved is None:
        raise TrainingError(f"{folder}: no checkpoint there")
    settings = saved["settings"]
    network = initial_network(ModelSettings(**settings["model"]), settings["run"]["seed"])
    heads = TrainedHeads(network, LossSettings(**settings["losses"]), torch.Generator().manual_seed(0))
    heads.load_state_dict(saved["trainer"]["heads"])
    if not last:
        optimiser = Optimiser(heads, OptimiserSettings(**settings["optimiser"]))
        optimiser.load_state_dict(saved["trainer"]["optimiser"])
        optimiser.swap_mean()
    return network


NAME = "checkpoint.pt"
VERSION = 1


def save_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Write the checkpoint of a run durably. Raises TrainingError."""
    file = io.BytesIO()
    torch.save({"version": VERSION, **state}, file)
    with failing_as(TrainingError, f"cannot write {folder / NAME}"):
        write_atomically(folder / NAME, file.getvalue(), durable=True)


def has_checkpoint(folder: Path) -> bool:
    """Return True if a run's folder has a checkpoint."""
    return (folder / NAME).exists()


def load_checkpoint(folder: Path) -> dict[str, Any] | None:
    """Return the checkpoint of a run's folder, on the CPU; None if there is none. Raises TrainingError."""
    path = folder / NAME
    if not has_checkpoint(folder):
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load passes on errors of pickle and zip, and run-time errors
        raise TrainingError(f"{path} is damaged ({error}): move it away to begin anew") from None
    if state.get("version") != VERSION:
        raise TrainingError(f"{path} is of another version: move it away to begin anew")
    return state


def differences(saved: dict[str, Any], now: dict[str, Any], prefix: str = "") -> list[str]:
    """Return the settings that differ, as `table.key: before -> now`."""
    found: list[str] = []
    for key in sorted({*saved, *now}):
        before, after = saved.get(key), now.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            found += differences(before, after, f"{prefix}{key}.")
        elif before != after:
            found.append(f"{prefix}{key}: {before} -> {after}")
    return found
