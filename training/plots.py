# SPDX-License-Identifier: GPL-3.0-or-later
"""Plots of runs: losses, best moves found and speed over positions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protocol.host import outputs
from protocol.host.extras import install
from training.errors import TrainingError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """Return the metrics of a run, without an incomplete last line. Raises TrainingError."""
    path = run / METRICS
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise TrainingError(f"cannot read {path}: {error.strerror}") from None
    entries = []
    for number, line in enumerate(lines, 1):
        try:
            entries.append(json.loads(line))
        except ValueError:
            if number < len(lines):
                raise TrainingError(f"{path}: line {number} is damaged") from None
    return entries


def plot_runs(runs: Sequence[Path], output: Path) -> None:
    """Plot several runs: thin lines for training steps, thick ones for held-out games.

    Raises TrainingError.
    """
    figure = figure_of(12, 10)
    metrics = {run: read_metrics(run) for run in runs}
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


def figure_of(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches. Raises TrainingError."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise TrainingError(f"drawing needs matplotlib: {install('plot')}") from None
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Figure, output: Path) -> None:
    """Write a figure in the format of the file's suffix. Raises TrainingError."""
    try:
        outputs.save_figure(figure, output)
    except OSError as error:
        raise TrainingError(f"cannot draw {output}: {error.strerror}") from None
    except ValueError as error:
        raise TrainingError(f"cannot draw {output}: {error}") from None
