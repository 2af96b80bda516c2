# SPDX-License-Identifier: GPL-3.0-or-later
"""The processes of a run: one per GPU, each with all data and its share of every batch."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from training.config import RunSettings
from training.errors import TrainingError


@dataclass(frozen=True, slots=True)
class Group:
    """This process in the group of a run. Rank 0 writes files and decides when to stop."""

    rank: int
    size: int
    device: torch.device

    def mean_gradients(self, parameters: list[Tensor]) -> None:
        """Replace gradients by their mean over the processes, in one exchange."""
        if self.size == 1:
            return
        gradients = [values.grad for values in parameters if values.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        flat /= self.size
        pieces = flat.split([gradient.numel() for gradient in gradients])
        torch._foreach_copy_(gradients, [p.reshape(g.shape) for p, g in zip(pieces, gradients, strict=True)])

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean over the processes."""
        if self.size > 1:
            values = values.clone()
            dist.all_reduce(values)
            values /= self.size
        return values

    def shared(self, value: Any) -> Any:
        """Return rank 0's value on every rank, sent by pickle."""
        if self.size == 1:
            return value
        said = [value]
        dist.broadcast_object_list(said, 0, device=self.device)
        return said[0]

    def agreed(self, values: list[float]) -> list[float]:
        """Return rank 0's values on every rank."""
        if self.size == 1:
            return values
        said = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.broadcast(said, 0)
        return [float(value) for value in said.tolist()]


def device_of(settings: RunSettings) -> str:
    """Return cpu or cuda. Raises TrainingError if the settings name a missing GPU."""
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise TrainingError(
            "PyTorch sees no GPU here: install the build for yours (CUDA or ROCm), or set [run] device = cpu"
        )
    if settings.device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return settings.device


def run_group(settings: RunSettings, work: Callable[[Group, Any], None], argument: Any) -> None:
    """Call work(group, argument) in every process of the run, or in this one if it is the only one.

    work and argument are sent to the others by pickle. Raises TrainingError if one of several fails.
    """
    kind = device_of(settings)
    size = settings.processes or (torch.cuda.device_count() if kind == "cuda" else 1)
    if kind == "cuda" and size > torch.cuda.device_count():
        raise TrainingError(f"[run] processes = {size}, but there are {torch.cuda.device_count()} GPUs")
    if kind == "cpu":
        torch.set_num_threads(max(1, (settings.threads or os.cpu_count() or 1) // size))
    if size == 1:
        work(Group(0, 1, torch.device(kind)), argument)
        return
    with tempfile.TemporaryDirectory(prefix="wavefront-training-") as folder:
        meeting = str(Path(folder, "meeting"))
        try:
            torch.multiprocessing.spawn(
                _member, (size, kind, torch.get_num_threads(), meeting, work, argument), nprocs=size
            )
        except torch.multiprocessing.ProcessRaisedException as error:
            raise TrainingError(str(error).strip().splitlines()[-1]) from None
        except torch.multiprocessing.ProcessExitedException as error:
            raise TrainingError(f"a process of the run ended: {error}") from None


def _member(
    rank: int,
    size: int,
    kind: str,
    threads: int,
    meeting: str,
    work: Callable[[Group, Any], None],
    argument: Any,
) -> None:
    device = torch.device(kind, rank) if kind == "cuda" else torch.device(kind)
    if kind == "cuda":
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(threads)
    dist.init_process_group(
        "nccl" if kind == "cuda" else "gloo", init_method=f"file://{meeting}", rank=rank, world_size=size
    )
    try:
        work(Group(rank, size, device), argument)
    finally:
        dist.destroy_process_group()
