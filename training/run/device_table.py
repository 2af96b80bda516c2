# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of positions on the device, where batches are gathered and unpacked, and policy targets made."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from engine.apps.shards import NAT_STEPS
from training import targets
from training.config import DataSettings, TargetSettings
from training.data.table import NO_PLACE, PositionTable
from training.model.losses import Batch, over_moves
from training.model.network import AttentionNetwork, policy_source
from training.model.planes import cut_history, expand, mirrored, mirrored_policy

SYMMETRIC_FORMATS = (1, 2)
"""Input formats in which a position without castling rights may be mirrored; the others fix a side."""

PRIOR_BATCH = {"cuda": 8192, "cpu": 256}
"""Positions per evaluation of a prior."""


MOST_MOVES = 224
"""Width of batches if it must not change: the maximum of 218 legal moves, and a margin."""

_VIEWS = {"boards": "<i8", "masks": "<i8", "moves": "<i2", "keys": "<i8"}
"""Types of unsigned columns in PyTorch."""

_BY_MOVE = ("moves", "policy", "shares", "prior")
"""Columns with an entry for each legal move; the last two exist only if needed."""

_BY_POSITION = (
    *("boards", "masks", "repetitions", "rule50", "annotated", "listed", "listed_score", "searched", "best"),
    *("wdl", "next_wdl", "plies_left", "share", "held_out", "keys", "surprise"),
)


class Gathered(NamedTuple):
    """Columns of some rows, legal moves as [B, K]. Sizes do not depend on the table."""

    boards: Tensor
    masks: Tensor
    repetitions: Tensor
    rule50: Tensor
    moves: Tensor
    legal: Tensor
    policy: Tensor
    wdl: Tensor
    next_wdl: Tensor
    plies_left: Tensor
    best: Tensor


class DeviceTable:
    """The columns of PositionTables on a device. Tables can be added and removed.

    sizes: rows of each table, in order. share: mean uses of a position per epoch; taken: the same, but 0 for
    repeated positions. policy, float16 [m]: target of every legal move. surprise: NaN if unknown.
    """

    boards: Tensor
    masks: Tensor
    repetitions: Tensor
    rule50: Tensor
    annotated: Tensor
    listed: Tensor
    listed_score: Tensor
    searched: Tensor
    best: Tensor
    wdl: Tensor
    next_wdl: Tensor
    plies_left: Tensor
    share: Tensor
    held_out: Tensor
    keys: Tensor
    surprise: Tensor
    moves: Tensor
    policy: Tensor
    move_start: Tensor
    taken: Tensor

    def __init__(
        self,
        tables: Sequence[PositionTable],
        data: DataSettings,
        *,
        input_format: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        """tables: at least one."""
        self._data = data
        self.device, self.dtype = device, dtype
        self.symmetric = input_format in SYMMETRIC_FORMATS
        self.sizes: list[int] = []
        self.shares: Tensor | None = None
        self.prior: Tensor | None = None
        self.most_moves = MOST_MOVES if data.follow_s else 0
        self.join(tables)
        source = torch.from_numpy(policy_source()).long()
        mirror = torch.from_numpy(mirrored_policy())
        self.entries = torch.stack([source, source[mirror]]).to(device)  # [2, 1858], plain and mirrored

    def __len__(self) -> int:
        return len(self.rule50)

    def join(self, tables: Sequence[PositionTable], leaving: Collection[int] = ()) -> None:
        """Append tables, after removing those with the numbers `leaving` (from 0)."""
        if leaving:
            self._leave(leaving)
        if tables:
            table = PositionTable.concatenate(tables)
            self._append(table)
            self.sizes += map(len, tables)
            if not self._data.follow_s:
                self.most_moves = max(self.most_moves, -(-table.most_moves // 8) * 8)
        first = (
            first_of_each(self.keys, self.held_out) if self._data.unique else torch.ones_like(self.held_out)
        )
        self.taken = self.share * first

    def _append(self, table: PositionTable) -> None:
        count, moves = len(table), len(table.moves)
        given = {
            name: self._put(getattr(table, name), _VIEWS.get(name))
            for name in (*_BY_POSITION, "moves")
            if name not in ("share", "surprise")
        }
        given["share"] = self._put(table.taken)
        given["surprise"] = torch.full((count,), torch.nan, device=self.device)
        given["policy"] = torch.zeros(moves, dtype=torch.float16, device=self.device)
        starts = self._put(table.move_start)
        if not self.sizes:
            self.move_start = starts
        else:
            self.move_start = torch.cat([self.move_start, starts[1:] + self.move_start[-1]])
        for name, column in given.items():
            setattr(self, name, torch.cat([getattr(self, name), column]) if self.sizes else column)
        before = len(self.moves) - moves
        for name, needed in (("shares", table.searched.any()), ("prior", table.annotated.any())):
            column, old = self._put(getattr(table, name)), getattr(self, name)
            if old is not None:
                setattr(self, name, torch.cat([old, column]))
            elif needed:
                setattr(self, name, torch.cat([column.new_zeros(before), column]))

    def _leave(self, leaving: Collection[int]) -> None:
        stays = torch.tensor([number not in leaving for number in range(len(self.sizes))])
        sizes = torch.tensor(self.sizes)
        rows = stays.repeat_interleave(sizes).to(self.device)
        counts = self.move_start.diff()
        entries = rows.repeat_interleave(counts)
        for names, chosen in ((_BY_POSITION, rows), (_BY_MOVE, entries)):
            for name in names:
                if getattr(self, name) is not None:
                    setattr(self, name, getattr(self, name)[chosen])
        self.move_start = functional.pad(counts[rows].cumsum(0), (1, 0))
        self.sizes = sizes[stays].tolist()

    def _put(self, column: NDArray[Any], kind: str | None = None) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(column if kind is None else column.view(kind))).to(
            self.device
        )

    def batch(self, rows: Tensor, chances: Tensor | None) -> Batch:
        """Return the samples of rows, int64 [B]. chances: float32 [B, 3] from 0 to 1, which decide about
        mirroring and shortened histories; None uses the positions unchanged."""
        return self.expanded(self.gathered(rows), chances)

    def gathered(self, rows: Tensor) -> Gathered:
        """Return the data of rows, int64 [B]. Only this part of a batch depends on the table's size."""
        flat, legal = self._moves_of(rows)
        return Gathered(
            self.boards[rows],
            self.masks[rows],
            self.repetitions[rows],
            self.rule50[rows],
            self.moves[flat],
            legal,
            self.policy[flat],
            self.wdl[rows],
            self.next_wdl[rows],
            self.plies_left[rows],
            self.best[rows],
        )

    def expanded(self, rows: Gathered, chances: Tensor | None) -> Batch:
        """Return the samples of gathered data; chances as in `batch`."""
        boards, masks, repetitions = rows.boards, rows.masks, rows.repetitions
        flip = torch.zeros(len(boards), dtype=torch.bool, device=self.device)
        if chances is not None and self.symmetric:
            cut = torch.where(chances[:, 1] < self._data.short_history, (chances[:, 2] * 8).long(), 7)
            boards, repetitions = cut_history(boards, repetitions, cut)
            flip = (chances[:, 0] < self._data.mirror) & (masks[:, :4] == 0).all(1)
        tokens = expand(boards, masks, repetitions, rows.rule50, self.dtype)
        if chances is not None and self.symmetric:
            tokens = mirrored(tokens, flip)
        entries = self.entries[flip.long()[:, None], rows.moves.long()]
        policy = rows.policy.float() * rows.legal
        policy = policy / policy.sum(1, keepdim=True).clamp(min=1e-6)
        return Batch(
            tokens,
            entries,
            rows.legal,
            policy,
            rows.wdl,
            rows.next_wdl,
            rows.plies_left,
            rows.best.long(),
        )

    def sound(self, rows: Tensor) -> Tensor:
        """Return True for rows whose targets are all finite, bool [B]. `plies_left` may be NaN."""
        batch = self.batch(rows, None)
        parts = (batch.policy, batch.wdl, batch.next_wdl, batch.plies_left.nan_to_num()[:, None])
        return torch.stack([part.isfinite().all(1) for part in parts]).all(0)

    def _moves_of(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the indices [B, K] of the rows' moves in `moves` and `policy`, and a mask of real moves."""
        start, stop = self.move_start[rows], self.move_start[rows + 1]
        flat = start[:, None] + torch.arange(self.most_moves, device=self.device)
        legal = flat < stop[:, None]
        return flat.clamp(max=len(self.moves) - 1), legal

    def times(self) -> Tensor:
        """Return the mean uses of each position per epoch, [n]."""
        share = self._data.surprise
        if not share or self.surprise.isnan().all():
            return self.taken
        return self.taken * targets.surprise_weights(self.surprise, share)

    def unannotated(self, since: int = 0) -> bool:
        """Return True if labelled positions need a prior's evaluation. since: number of the first table."""
        first = sum(self.sizes[:since])
        return bool((~self.annotated[first:] & ~self.searched[first:]).any())

    @torch.no_grad()
    def set_policy(
        self,
        prior: AttentionNetwork | None,
        settings: TargetSettings,
        progress: Callable[[int], None] = lambda done: None,
        *,
        annotations: bool = False,
        since: int = 0,
    ) -> None:
        """Compute the policy targets. For labelled positions: the prior's policy improved by the engine's
        scores; for searched ones: shares of visits.

        progress: called with the number of finished positions. annotations: use the prior's stored policy if
        present.
        since: number of the first table. Each table is evaluated separately, so that its targets are
        bit-identical regardless of the others.
        """
        stored = self.prior if annotations else None
        for rows in self._pieces(PRIOR_BATCH[self.device.type], since):
            flat, legal = self._moves_of(rows)
            log_prior = torch.zeros(flat.shape, device=self.device)
            if prior is not None:
                batch = self.batch(rows, None)
                log_prior = over_moves(prior(batch.tokens).policy, batch)
            expected = log_prior
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
            if prior is not None and self._data.surprise:
                self.surprise[rows] = _divergence(policy, expected)
            progress(int(rows[-1]) + 1)

    def _pieces(self, size: int, since: int) -> Iterator[Tensor]:
        """Yield the rows of the tables from number `since` on, at most `size` rows of one table each."""
        ends = list(accumulate(self.sizes))
        for last, count in list(zip(ends, self.sizes, strict=True))[since:]:
            yield from torch.arange(last - count, last, device=self.device).split(size)

    def _scores(self, rows: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """Return which legal moves are listed, and their scores, both [B, K]."""
        places, scores = self.listed[rows].long(), self.listed_score[rows]
        there = places != NO_PLACE
        places = places.where(there, width)  # an extra column receives the missing entries
        listed = torch.zeros(len(rows), width + 1, dtype=torch.bool, device=self.device)
        score = torch.zeros(len(rows), width + 1, device=self.device)
        listed.scatter_(1, places, there)
        score.scatter_(1, places, scores)
        return listed[:, :width], score[:, :width]


def _divergence(policy: Tensor, logarithms: Tensor) -> Tensor:
    """Return the divergence [B] of policies [B, K] from those with the given logarithms."""
    known = logarithms.clamp(min=-20)
    return (policy * (policy.clamp(min=1e-12).log() - known)).sum(1)


def first_of_each(keys: Tensor, held_out: Tensor) -> Tensor:
    """Return which positions are the first of their key (int64 [n]), bool [n].
    Held-out ones come before all others, so that none of them is trained on."""
    order = torch.argsort((~held_out).to(torch.uint8), stable=True)
    order = order[torch.argsort(keys[order], stable=True)]
    ranked = keys[order]
    first = torch.ones_like(held_out)
    first[order[1:]] = ranked[1:] != ranked[:-1]
    return first
