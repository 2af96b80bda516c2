# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of training positions."""

from __future__ import annotations

import torch
from torch import Tensor

from training.errors import TrainingError
from training.run.device_table import DeviceTable


class Sampler:
    """Draws batches of rows. Each epoch is a permutation of the positions that their share admits.
    It depends only on the seed and the epoch's number."""

    def __init__(self, table: DeviceTable, batch: int, seed: int) -> None:
        self._table = table
        self._batch = batch
        self._seed = seed
        self.epoch = self.taken = 0
        self._order: Tensor | None = None

    def next(self) -> tuple[Tensor, Tensor]:
        """Return the rows of the next batch, int64 [B], and chances for `DeviceTable.batch`."""
        if self._order is None:
            self._order = self._permutation()
        if self.taken + self._batch > len(self._order):
            self.epoch, self.taken = self.epoch + 1, 0
            self._order = self._permutation()
        rows = self._order[self.taken : self.taken + self._batch]
        generator = self._generator(1 + self.taken // self._batch)
        self.taken += self._batch
        return rows, torch.rand(self._batch, 3, generator=generator, device=self._table.device)

    def begin_epoch(self) -> None:
        """Start a new epoch with the next batch."""
        self.epoch, self.taken, self._order = self.epoch + 1, 0, None

    def _permutation(self) -> Tensor:
        table, generator = self._table, self._generator(0)
        chances = torch.rand(len(table), generator=generator, device=table.device)
        times = table.times() * ~table.held_out
        whole = times.floor()
        rows = torch.arange(len(table), device=table.device)
        rows = rows.repeat_interleave((whole + (chances < times - whole)).long())
        if len(rows) < self._batch:
            raise TrainingError(
                f"{len(rows):,} positions are less than a batch of {self._batch:,}: import more, or set "
                "[optimiser] batch lower"
            )
        return rows[torch.randperm(len(rows), generator=generator, device=table.device)]

    def _generator(self, number: int) -> torch.Generator:
        seed = (self._seed * 1_000_003 + self.epoch) * 1_000_003 + number
        return torch.Generator(self._table.device).manual_seed(seed % 2**62)

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "taken": self.taken}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.taken = state["epoch"], state["taken"]
        self._order = None
