# SPDX-License-Identifier: GPL-3.0-or-later
"""The network of a run's checkpoint."""

from __future__ import annotations

from pathlib import Path

import torch

from training.config import LossSettings, ModelSettings, OptimiserSettings
from training.errors import TrainingError
from training.model.initial import initial_network
from training.model.losses import TrainedHeads
from training.model.network import AttentionNetwork
from training.optim.optimiser import Optimiser
from training.run.checkpoint import load_checkpoint


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
