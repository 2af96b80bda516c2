# SPDX-License-Identifier: GPL-3.0-or-later
"""The values of a tuning over the iterations, as one SVG file without dependencies."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from engine.apps.tune.progress import Progress
from engine.apps.tune.result import TunedValue, tuned_values
from protocol.common.files import write_atomically

WIDTH, HEIGHT, LEFT, TOP, GAP = 640, 110, 90, 40, 34
"""Size of a parameter's panel in pixels, and its distances to the left, to the top and to the next."""

POINTS = 640
"""Maximum points of a curve: more are not visible."""

STYLE = (
    "text{font:12px sans-serif;fill:#333}.title{font-weight:bold}.frame{fill:none;stroke:#bbb}"
    ".start{stroke:#999;stroke-dasharray:4 3}.mean{stroke:#d02020}.error{fill:#d02020;opacity:.15}"
    ".path{fill:none;stroke:#2080d0;stroke-width:1.5}"
)


def write_plot(progress: Progress, report: Callable[[str], None] = lambda text: None) -> None:
    """Write the plot. report: called with the reason if the file cannot be written."""
    path = progress.config.plot
    try:
        write_atomically(path, drawing(progress).encode())
    except OSError as error:
        report(f"cannot write {path}: {error.strerror}")


def drawing(progress: Progress) -> str:
    """Return a panel for each parameter: its values, the start (dashed), and the mean of the second half with
    two standard errors."""
    config = progress.config
    values = tuned_values(config, progress.steps)
    panels = [_panel(progress, index, value) for index, value in enumerate(values)]
    height = TOP + len(panels) * (HEIGHT + GAP)
    title = f"{config.match.event}: {len(progress.steps)} of {config.settings.iterations} iterations"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {height}" role="img">'
        f'<style>{STYLE}</style><rect width="100%" height="100%" fill="#fff"/>'
        f'<text class="title" x="{LEFT}" y="18">{escape(title)}</text>{"".join(panels)}</svg>\n'
    )


def _panel(progress: Progress, index: int, value: TunedValue) -> str:
    parameter, steps = value.parameter, progress.steps
    every = max(1, -(-len(steps) // POINTS))
    last = max(1, len(steps))
    path = [(0, parameter.start)]
    path += [(count, steps[count - 1].theta[index]) for count in range(every, len(steps) + 1, every)]
    margin = 2 * value.error if value.error == value.error else 0.0
    shown = [height for _, height in path] + [value.mean - margin, value.mean + margin]
    low, high = min(shown), max(shown)
    if low == high:
        low, high = low - parameter.c_end, high + parameter.c_end
    top = TOP + index * (HEIGHT + GAP)

    def x(count: float) -> float:
        return round(LEFT + WIDTH * count / last, 1)

    def y(height: float) -> float:
        return round(top + HEIGHT * (high - height) / (high - low), 1)

    points = " ".join(f"{x(count)},{y(height)}" for count, height in path)
    upper, lower = y(value.mean + margin), y(value.mean - margin)
    half, end = x(len(steps) // 2), LEFT + WIDTH
    band = f'x="{half}" y="{upper}" width="{end - half}" height="{round(lower - upper, 1)}"'
    error = f" ± {value.error:.2g}" if value.error == value.error else ""
    label = f"{parameter.name}: {value.mean:.5g}{error}, started at {value.parameter.start:.5g}"
    return (
        f'<rect class="frame" x="{LEFT}" y="{top}" width="{WIDTH}" height="{HEIGHT}"/>'
        f'<rect class="error" {band}/>'
        f'<line class="start" x1="{LEFT}" y1="{y(parameter.start)}" x2="{end}" y2="{y(parameter.start)}"/>'
        f'<line class="mean" x1="{half}" y1="{y(value.mean)}" x2="{end}" y2="{y(value.mean)}"/>'
        f'<polyline class="path" points="{points}"/>'
        f'<text x="{LEFT}" y="{top - 6}">{escape(label)}</text>'
        f'<text x="{LEFT - 6}" y="{top + 10}" text-anchor="end">{high:.4g}</text>'
        f'<text x="{LEFT - 6}" y="{top + HEIGHT}" text-anchor="end">{low:.4g}</text>'
    )
