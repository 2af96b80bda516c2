# SPDX-License-Identifier: GPL-3.0-or-later
"""Training in one process: network, optimiser, table, and the training step."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from evaluator.network import load_network
from training.config import TrainConfig
from training.data.table import PositionTable
from training.errors import TrainingError
from training.model.dead_units import dead_shares, pass_gradients, revive, watched
from training.model.initial import initial_network
from training.model.losses import NAMES, TrainedHeads
from training.model.network import AttentionNetwork
from training.optim.optimiser import Optimiser, rate_factor, refreshes_due
from training.run.device_table import DeviceTable, Gathered
from training.run.processes import Group
from training.run.sampling import Sampler

VALIDATION_BATCH = 2048
WATCHED = 8192
"""Positions for detecting dead units."""


class Trainer:
    """Runs training steps. Equal settings and progress give bit-identical weights on one device.

    revived: number of restarted units of the initial network.
    """

    def __init__(self, config: TrainConfig, tables: Sequence[PositionTable], group: Group) -> None:
        """tables: one per shard, at least one. Raises TrainingError."""
        if config.optimiser.batch % group.size:
            raise TrainingError(
                f"[optimiser] batch {config.optimiser.batch} is no multiple of the {group.size} processes"
            )
        self.config, self.group = config, group
        on_gpu = group.device.type == "cuda"
        precision = config.run.precision
        dtype = torch.bfloat16 if precision == "bf16" or (precision == "auto" and on_gpu) else torch.float32
        if on_gpu:
            torch.set_float32_matmul_precision("high")
        network = initial_network(config.model, config.run.seed)
        network.use_attention(config.run.attention, group.device, dtype)
        generator = torch.Generator().manual_seed(config.run.seed)
        self.heads = TrainedHeads(network, config.losses, generator).to(group.device)
        self.table = DeviceTable(
            tables,
            config.data,
            input_format=int(network.template.input_format),
            device=group.device,
            dtype=dtype,
        )
        self.revived = self._revive(generator) if config.model.revive else 0
        pass_gradients(network, config.optimiser.dead_slope)
        self.optimiser = Optimiser(self.heads, config.optimiser)
        self.sampler = Sampler(self.table, config.optimiser.batch, config.run.seed)
        self.steps = self.refreshes = 0
        self.prior: dict[str, Tensor] | None = None
        self._prior_network: AttentionNetwork | None = None  # from `prior`, or from the file
        self._figures = torch.zeros(len(NAMES) + 1, device=group.device)
        self._sound = torch.ones((), dtype=torch.bool, device=group.device)
        self._unchecked: list[Tensor] = []  # rows of the steps since the last `broken_tables`
        self._counted = 0
        compiled = on_gpu and config.run.compile
        # PyTorch reports its choice of softmax with it; users need not act on it.
        warnings.filterwarnings("ignore", message=r"\s*Online softmax is disabled")
        self._compiled = torch.compile(self._loss, dynamic=False, fullgraph=True) if compiled else None

    @property
    def network(self) -> AttentionNetwork:
        return self.heads.network

    @property
    def positions(self) -> int:
        """Number of positions used so far, over all processes."""
        return self.steps * self.config.optimiser.batch

    def _revive(self, generator: torch.Generator) -> int:
        """Restart the network's dead units, equally in all processes, and return their number."""
        rows = torch.randperm(len(self.table), generator=torch.Generator().manual_seed(self.config.run.seed))
        seen = watched(self.network, self._tokens(rows[:WATCHED].to(self.group.device)))
        return revive(self.network, self.group.shared(seen), generator)

    def _tokens(self, rows: Tensor) -> Iterator[Tensor]:
        for piece in rows.split(VALIDATION_BATCH):
            yield self.table.batch(piece, None).tokens

    def join(self, tables: Sequence[PositionTable], leaving: Collection[int] = ()) -> None:
        """Add shards and start an epoch over all positions. leaving: numbers of shards to remove."""
        self.table.join(tables, leaving)
        self.set_targets(len(self.table.sizes) - len(tables))
        self.sampler.begin_epoch()

    def set_targets(self, since: int = 0) -> None:
        """Compute the policy targets with the prior of the settings or of the last refresh.
        since: number of the first shard."""
        self._make_policy(since)
        if self.config.data.surprise:  # bit-identical in all processes, which sample positions by it
            first = sum(self.table.sizes[:since])
            self.table.surprise[first:] = self.group.mean(self.table.surprise[first:])

    def _make_policy(self, since: int) -> None:
        settings = self.config.targets
        prior: AttentionNetwork | None = None
        # A refreshed prior knows less than a search.
        annotations = bool(settings.prior) and (self.prior is None or settings.prior_nodes > 0)
        if settings.prior and (not annotations or self.config.data.surprise or self.table.unannotated(since)):
            prior = self._prior_network = self._prior_network or self._made_prior()
        self.table.set_policy(prior, settings, annotations=annotations, since=since)

    def _made_prior(self) -> AttentionNetwork:
        """Return the current prior, on the device. Raises TrainingError and NetworkError."""
        settings = self.config.targets
        if self.prior is None:
            prior = AttentionNetwork(load_network(settings.prior))
            ours, theirs = self.network.template.input_format, prior.template.input_format
            if ours is not theirs:
                raise TrainingError(
                    f"[targets] prior: {settings.prior} reads input format {int(theirs)}, this network "
                    f'{int(ours)}: name another, or "" for targets of scores alone'
                )
        else:
            prior = AttentionNetwork(self.network.template)
            prior.load_state_dict(self.prior)
        prior.use_attention("auto", self.group.device, self.table.dtype)
        return prior.to(self.group.device).eval()

    def step(self, progress: float) -> None:
        """Run one training step. progress: finished share of the run."""
        schedule = self.config.schedule
        if refreshes_due(schedule, self.config.targets.prior_refreshes, progress) > self.refreshes:
            self._refresh()
        rows, chances = self.sampler.next()
        share = len(rows) // self.group.size
        mine = slice(self.group.rank * share, (self.group.rank + 1) * share)
        # The table grows, but the compiled function gets gathered rows of constant size.
        loss, figures = (self._compiled or self._loss)(self.table.gathered(rows[mine]), chances[mine])
        loss.backward()
        self.group.mean_gradients(self.optimiser.parameters)
        factor = rate_factor(schedule, self.steps, progress)
        norm = self.optimiser.step(factor, self.steps)
        step = torch.cat([figures, norm.detach().reshape(1)])
        self._figures += step
        self._sound &= step.isfinite().all()
        self._unchecked.append(rows)
        self._counted += 1
        self.steps += 1

    def _loss(self, rows: Gathered, chances: Tensor) -> tuple[Tensor, Tensor]:
        result: tuple[Tensor, Tensor] = self.heads(self.table.expanded(rows, chances))
        return result

    def _refresh(self) -> None:
        """Make the mean of the weights the prior."""
        self.refreshes += 1
        if not self.config.targets.prior:
            return
        with self.optimiser.averaged():
            self.prior = {
                name: values.detach().cpu().clone() for name, values in self.network.state_dict().items()
            }
        self._prior_network = None
        self.set_targets()
        if self.config.data.surprise:
            self.sampler.begin_epoch()  # with the new sampling weights, as a resumed run would

    def broken_tables(self) -> list[int] | None:
        """Check the steps since the last call; None if every loss, gradient and weight was finite.

        Otherwise the weights are lost. Return the numbers of the tables whose targets in those steps are not
        finite; empty if all are finite. Waits for the device.
        """
        rows, self._unchecked = self._unchecked, []
        if bool(self.group.mean((self._sound & self._finite()).float()) == 1):
            return None
        ends = torch.tensor(self.table.sizes).cumsum(0)
        found = [each.cpu()[~self.table.sound(each).cpu()] for each in rows]
        return torch.bucketize(torch.cat(found), ends, right=True).unique().tolist()

    def finite(self) -> bool:
        """Return True if all weights are finite. Waits for the device."""
        return bool(self._finite())

    def _finite(self) -> Tensor:
        return torch.stack([values.detach().isfinite().all() for values in self.optimiser.parameters]).all()

    def figures(self) -> dict[str, float]:
        """Return means of NAMES and of the gradient's norm since the last call. Waits for the device."""
        means = self.group.mean(self._figures / max(1, self._counted)).tolist()
        self._figures.zero_()
        self._counted = 0
        return dict(zip((*NAMES, "gradient_norm"), means, strict=True))

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Return means of NAMES over held-out games, with the mean of the weights; empty without games."""
        rows = self._held_out()
        if not len(rows):
            return {}
        total = torch.zeros(len(NAMES), device=self.group.device)
        with self.optimiser.averaged():
            for piece in rows.split(VALIDATION_BATCH):
                total += self.heads(self.table.batch(piece, None))[1] * len(piece)
        return dict(zip(NAMES, (total / len(rows)).tolist(), strict=True))

    def _held_out(self) -> Tensor:
        return self.table.held_out.nonzero().squeeze(1)

    @torch.no_grad()
    def dead_shares(self) -> dict[str, float]:
        """Return each feed-forward layer's share of units that are 0 for every held-out position.
        Uses the mean of the weights; empty without held-out positions."""
        rows = self._held_out()[:WATCHED]
        if not len(rows):
            return {}
        with self.optimiser.averaged():
            return dead_shares(self.network, self._tokens(rows))

    def state_dict(self) -> dict[str, Any]:
        return {
            "heads": self.heads.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "sampler": self.sampler.state_dict(),
            "steps": self.steps,
            "refreshes": self.refreshes,
            "prior": self.prior,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.heads.load_state_dict(state["heads"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.sampler.load_state_dict(state["sampler"])
        self.steps, self.refreshes = int(state["steps"]), int(state["refreshes"])
        self.prior, self._prior_network = state["prior"], None
