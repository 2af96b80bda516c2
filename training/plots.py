# SPDX-License-Identifier: GPL-3.0-or-later
"""Plots of runs: losses, best moves found and speed over positions. Plots of loops: Elo over generations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from protocol.common.outputs import figure_of, save_figure
from protocol.common.printing import failing_as
from training.errors import TrainingError

METRICS = "metrics.jsonl"
PANELS = (
    ("policy_kl", "policy: divergence from the target"),
    ("value", "W D L: cross entropy"),
    ("best_move", "share of best moves found"),
    ("q_error", "mean squared error of q"),
    ("gradient_norm", "norm of the gradient"),
    ("positions_per_second", "positions per second"),
)


def is_metrics(content: bytes) -> bool:
    """Return True for the content of a run's metrics."""
    return content.startswith(b'{"kind": ')


def read_entries(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's metrics or a loop's journal, without an incomplete last one.

    Raises TrainingError.
    """
    with failing_as(TrainingError, f"cannot read {path}"):
        lines = path.read_text("utf-8").splitlines()
    entries = []
    for number, line in enumerate(lines, 1):
        try:
            entries.append(json.loads(line))
        except ValueError:
            if number < len(lines):
                raise TrainingError(f"{path}: line {number} is damaged") from None
    return entries


def plot_runs(runs: Sequence[Path], output: Path) -> None:
    """Plot several runs: thin lines for training steps, thick ones for held-out games. Raises TrainingError
    and PlotError."""
    figure = figure_of(12, 10)
    metrics = {run: read_entries(run / METRICS) for run in runs}
    axes = figure.subplots(3, 2).ravel()
    for axis, (name, title) in zip(axes, PANELS, strict=True):
        for number, (run, entries) in enumerate(metrics.items()):
            for kind, width in (("step", 0.8), ("held_out", 2.0)):
                points = [
                    (entry["positions"] / 1e6, entry[name])
                    for entry in entries
                    if entry["kind"] == kind and name in entry
                ]
                if points:
                    label = f"{run.name}, held out" if kind == "held_out" else run.name
                    axis.plot(*zip(*points, strict=True), linewidth=width, color=f"C{number}", label=label)
        axis.set_title(title)
        axis.set_xlabel("million positions")
        axis.grid(alpha=0.3)
    axes[0].legend()
    save_figure(figure, output)


def plot_loop(journal: Path, output: Path) -> None:
    """Plot what a loop's generations gained over its start in each gate: the sum of the promoted ones.

    A bar is the 95 % interval of the generation's own gate. Raises TrainingError and PlotError.
    """
    figure = figure_of(8, 5)
    axis = figure.subplots()
    ends = [entry for entry in read_entries(journal) if entry.get("step") == "promote"]
    for gate, label in enumerate(("at equal nodes", "under a clock")):
        reached = [0.0]
        for entry in ends:
            elo = (
                entry["elo"][gate]
                if gate < len(entry["elo"])
                else dict.fromkeys(("value", "low", "high"), 0.0)
            )
            bar = [[elo["value"] - elo["low"]], [elo["high"] - elo["value"]]]
            marker = "o" if entry["accepted"] else "x"
            axis.errorbar(
                len(reached), reached[-1] + elo["value"], bar, fmt=marker, color=f"C{gate}", capsize=4
            )
            reached.append(reached[-1] + elo["value"] * entry["accepted"])
        if any(reached):
            axis.step(range(len(reached)), reached, where="post", color=f"C{gate}", label=label)
    axis.set(xlabel="generation (x: not promoted)", ylabel="Elo over the start", xticks=range(len(ends) + 1))
    axis.grid(alpha=0.3)
    axis.legend()
    save_figure(figure, output)
