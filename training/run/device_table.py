"""The table of positions on the device: batches are gathered and expanded there, policy targets made
there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from training import targets
from training.config import DataSettings, TargetSettings
from training.data.annotations import NAT_STEPS
from training.data.table import NO_PLACE, PositionTable
from training.errors import TrainingError
from training.model.losses import Batch, over_moves
from training.model.network import AttentionNetwork, policy_source
from training.model.planes import cut_history, expand, mirrored, mirrored_policy

SYMMETRIC_FORMATS = (1, 2)
"""Input formats in which a position without castling rights may be seen mirrored; the others choose a
side."""

PRIOR_BATCH = {"cuda": 8192, "cpu": 256}
"""Positions that a prior evaluates at once."""


class DeviceTable:
    """The columns of a PositionTable on a device. `policy`, float16 [m], is the target of every legal
    move."""

    def __init__(
        self,
        table: PositionTable,
        data: DataSettings,
        *,
        input_format: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        def put(column: np.ndarray[tuple[int, ...], np.dtype[np.generic]], kind: str | None = None) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(column if kind is None else column.view(kind))).to(
                device
            )

        self._data = data
        self.device, self.dtype = device, dtype
        self.symmetric = input_format in SYMMETRIC_FORMATS
        self.boards, self.masks = put(table.boards, "<i8"), put(table.masks, "<i8")
        self.repetitions, self.rule50 = put(table.repetitions), put(table.rule50)
        self.move_start, self.moves = put(table.move_start), put(table.moves, "<i2")
        self.shares = put(table.shares) if table.searched.any() else None
        self.annotated = put(table.annotated)
        self.prior = put(table.prior) if table.annotated.any() else None
        self.policy = torch.zeros(len(table.moves), dtype=torch.float16, device=device)
        self.surprise = torch.full((len(table),), torch.nan, device=device)
        self.listed, self.listed_score = put(table.listed), put(table.listed_score)
        self.searched, self.best = put(table.searched), put(table.best)
        self.wdl, self.next_wdl, self.plies_left = put(table.wdl), put(table.next_wdl), put(table.plies_left)
        self.taken, self.early, self.held_out = put(table.taken), put(table.early), put(table.held_out)
        self.most_moves = -(-table.most_moves // 8) * 8
        source = torch.from_numpy(policy_source()).long()
        mirror = torch.from_numpy(mirrored_policy())
        self.entries = torch.stack([source, source[mirror]]).to(device)  # [2, 1858], plain and mirrored

    def __len__(self) -> int:
        return len(self.rule50)

    def batch(self, rows: Tensor, chances: Tensor | None) -> Batch:
        """The samples of rows, int64 [B]. chances: float32 [B, 3] from 0 to 1, which decide what is mirrored
        and where history is cut; None takes the positions as they are."""
        boards, masks, repetitions = self.boards[rows], self.masks[rows], self.repetitions[rows]
        flip = torch.zeros(len(rows), dtype=torch.bool, device=self.device)
        if chances is not None and self.symmetric:
            cut = torch.where(chances[:, 1] < self._data.short_history, (chances[:, 2] * 8).long(), 7)
            boards, repetitions = cut_history(boards, repetitions, cut)
            flip = (chances[:, 0] < self._data.mirror) & (masks[:, :4] == 0).all(1)
        tokens = expand(boards, masks, repetitions, self.rule50[rows], self.dtype)
        if chances is not None and self.symmetric:
            tokens = mirrored(tokens, flip)
        flat, legal = self._moves_of(rows)
        entries = self.entries[flip.long()[:, None], self.moves[flat].long()]
        policy = self.policy[flat].float() * legal
        policy = policy / policy.sum(1, keepdim=True).clamp(min=1e-6)
        return Batch(
            tokens,
            entries,
            legal,
            policy,
            self.wdl[rows],
            self.next_wdl[rows],
            self.plies_left[rows],
            self.best[rows].long(),
        )

    def _moves_of(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """[B, K] places of the rows' moves in `moves` and `policy`, and which of them there are."""
        start, stop = self.move_start[rows], self.move_start[rows + 1]
        flat = start[:, None] + torch.arange(self.most_moves, device=self.device)
        legal = flat < stop[:, None]
        return flat.clamp(max=len(self.moves) - 1), legal

    def times(self) -> Tensor:
        """[n] how often each position is taken in an epoch, in the mean."""
        share = self._data.surprise
        if not share or self.surprise.isnan().all():
            return self.taken
        return self.taken * targets.surprise_weights(self.surprise, share)

    @property
    def unannotated(self) -> bool:
        """Whether a prior has to be evaluated for labelled positions."""
        return bool((~self.annotated & ~self.searched).any())

    @torch.no_grad()
    def set_policy(
        self,
        prior: AttentionNetwork | None,
        settings: TargetSettings,
        progress: Callable[[int], None] = lambda done: None,
        *,
        annotations: bool = False,
    ) -> None:
        """Make all policy targets: of labelled positions, the prior's policy improved by the engine's scores;
        of searched ones the shares of the visits. progress: called with the number of positions done.

        annotations: where the prior's policy came with the positions, it is taken from there.
        """
        size = PRIOR_BATCH[self.device.type]
        stored = self.prior if annotations else None
        for first in range(0, len(self), size):
            rows = torch.arange(first, min(first + size, len(self)), device=self.device)
            flat, legal = self._moves_of(rows)
            log_prior = torch.zeros(flat.shape, device=self.device)
            if prior is not None:
                batch = self.batch(rows, None)
                log_prior = over_moves(prior(batch.tokens).policy, batch)
            if stored is not None:
                log_prior = torch.where(
                    self.annotated[rows][:, None], stored[flat].float() / -NAT_STEPS, log_prior
                )
            listed, score = self._scores(rows, flat.shape[1])
            exponent = 0.0 if prior is None and stored is None else settings.prior_exponent
            policy = targets.improved_policy(log_prior, score, listed, legal, settings, exponent)
            if self.shares is not None:
                policy = torch.where(self.searched[rows][:, None], self.shares[flat].float(), policy)
            self.policy[flat[legal]] = policy[legal].half()
            if exponent and self._data.surprise:
                self.surprise[rows] = _divergence(policy, log_prior)
            progress(first + len(rows))

    def _scores(self, rows: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """[B, K] which legal moves are listed, and their scores."""
        places, scores = self.listed[rows].long(), self.listed_score[rows]
        there = places != NO_PLACE
        places = places.where(there, width)  # a column beside the moves takes what is not there
        listed = torch.zeros(len(rows), width + 1, dtype=torch.bool, device=self.device)
        score = torch.zeros(len(rows), width + 1, device=self.device)
        listed.scatter_(1, places, there)
        score.scatter_(1, places, scores)
        return listed[:, :width], score[:, :width]


def _divergence(policy: Tensor, logarithms: Tensor) -> Tensor:
    """[B] of policies [B, K] from those of which the logarithms are given."""
    known = logarithms.clamp(min=-20)
    return (policy * (policy.clamp(min=1e-12).log() - known)).sum(1)


class Sampler:
    """The order in which positions are taken: each epoch a permutation of its own, of the seed and its number
    alone, of those that their share lets in."""

    def __init__(self, table: DeviceTable, batch: int, seed: int) -> None:
        self._table = table
        self._batch = batch
        self._seed = seed
        self.epoch = self.taken = 0
        self.without_early = False
        self._order: Tensor | None = None

    def next(self) -> tuple[Tensor, Tensor]:
        """The rows of the next batch, int64 [B], and chances for `DeviceTable.batch`."""
        if self._order is None:
            self._order = self._permutation()
        if self.taken + self._batch > len(self._order):
            self.epoch, self.taken = self.epoch + 1, 0
            self._order = self._permutation()
        rows = self._order[self.taken : self.taken + self._batch]
        generator = self._generator(1 + self.taken // self._batch)
        self.taken += self._batch
        return rows, torch.rand(self._batch, 3, generator=generator, device=self._table.device)

    def leave_early_out(self) -> None:
        """From the next batch on only positions that are not early."""
        if not self.without_early and bool(self._table.early.any()):
            self.begin_epoch()
        self.without_early = True

    def begin_epoch(self) -> None:
        """Take the next batch from a new epoch."""
        self.epoch, self.taken, self._order = self.epoch + 1, 0, None

    def _permutation(self) -> Tensor:
        table, generator = self._table, self._generator(0)
        chances = torch.rand(len(table), generator=generator, device=table.device)
        times = table.times() * ~table.held_out
        if self.without_early:
            times *= ~table.early
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

    def state_dict(self) -> dict[str, int | bool]:
        return {"epoch": self.epoch, "taken": self.taken, "without_early": self.without_early}

    def load_state_dict(self, state: dict[str, int | bool]) -> None:
        self.epoch, self.taken = int(state["epoch"]), int(state["taken"])
        self.without_early = bool(state["without_early"])
        self._order = None
