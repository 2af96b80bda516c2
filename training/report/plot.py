# SPDX-License-Identifier: GPL-3.0-or-later
"""Plot of reports: calibration of the value, calibration of the policy, regret."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from protocol.common.outputs import figure_of, save_figure
from training.report.figures import TEMPERATURES, NetworkReport

TICKS = (0.4, 0.6, 0.8, 1.0, 1.4, 2.0, 3.0, 4.0)


def plot_reports(reports: Sequence[NetworkReport], output: Path) -> None:
    """Plot reports. Raises PlotError."""
    figure = figure_of(15, 5)
    value, policy, regret = figure.subplots(1, 3)
    value.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    parts = [part for part in ("games", "branches") if part in reports[0].parts]
    for number, report in enumerate(reports):
        colour = f"C{number}"
        for part, style in (("games", "o-"), ("branches", "s--")):
            points = report.calibration.get(part)
            if points is not None:
                value.plot(
                    points[:, 0], points[:, 1], style, color=colour, label=f"{report.name}, {part}", ms=4
                )
        policy.plot(TEMPERATURES, report.log_losses, color=colour, label=report.name)
        policy.axvline(report.best_temperature, color=colour, linestyle=":", linewidth=1)
        places = [place + number / (len(reports) + 1) for place in range(len(parts))]
        figures = [report.parts[part] for part in parts]
        regret.bar(
            places,
            [100 * each.regret for each in figures],
            1 / (len(reports) + 1),
            yerr=[100 * each.regret_error for each in figures],
            color=colour,
            label=report.name,
        )
    value.set(title="value", xlabel="expected score, network", ylabel="expected score, label")
    policy.set(title="policy", xlabel="temperature", ylabel="log-loss of the label's move", xscale="log")
    policy.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    policy.minorticks_off()
    regret.set(title="regret of the policy's first move", ylabel="% of expected score")
    regret.set_xticks(range(len(parts)), parts)
    for axis in (value, policy, regret):
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    save_figure(figure, output)
