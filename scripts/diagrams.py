# SPDX-License-Identifier: GPL-3.0-or-later
"""Draw the diagrams of the documentation: `python scripts/diagrams.py` writes docs/images/*.svg."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
IMAGES = ROOT / "docs" / "images"

BLUE, GREEN, GREY, AMBER = "#dbe7ff", "#dcf3dd", "#eceff3", "#ffeccc"
INK = "#1f2933"


EDGES = ("e2e4\n18 %", "d2d4\n16 %", "g1f3\n12 %", "c2c4\n9 %")
"""Moves and priors of the example."""


class Drawing:
    """An SVG of boxes, arrows and texts. Coordinates are pixels from the upper left corner."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            'font-family="sans-serif" font-size="14">',
            f"<title>{escape(title)}</title>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
            f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{INK}"/></marker></defs>',
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        ]

    def box(self, x: int, y: int, width: int, height: int, lines: str, fill: str = GREY) -> None:
        """Draw a rectangle with centred lines of text, the first one bold."""
        self._parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}" stroke="{INK}"/>'
        )
        texts = lines.split("\n")
        top = y + height / 2 - 9 * (len(texts) - 1)
        for index, text in enumerate(texts):
            weight = ' font-weight="bold"' if index == 0 else ""
            self.text(x + width // 2, int(top + 18 * index + 5), text, "middle", weight)

    def text(self, x: float, y: float, text: str, anchor: str = "start", more: str = "") -> None:
        """Draw one line of text."""
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{INK}"{more}>{escape(text)}</text>'
        )

    def arrow(self, x1: float, y1: float, x2: float, y2: float, tip: bool = True) -> None:
        """Draw a line, with a tip at its end."""
        end = ' marker-end="url(#tip)"' if tip else ""
        self._parts.append(f'<path d="M{x1:g} {y1:g}L{x2:g} {y2:g}" stroke="{INK}" fill="none"{end}/>')

    def line(self, points: list[tuple[float, float]], colour: str) -> None:
        """Draw a line through points."""
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        self._parts.append(f'<path d="M{path}" stroke="{colour}" stroke-width="2.5" fill="none"/>')

    def circle(self, x: float, y: float, colour: str) -> None:
        """Draw a point."""
        self._parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>')

    def svg(self) -> str:
        """Return the SVG file's text."""
        return "\n".join([*self._parts, "</svg>"]) + "\n"


def processes() -> str:
    """Draw the two processes and their clients."""
    d = Drawing(760, 300, "The engine and the evaluator")
    d.box(20, 30, 130, 50, "Chess GUI\nor bot")
    d.box(20, 110, 130, 50, "Python\nprogram")
    d.box(20, 190, 130, 50, "Match,\nself-play")
    d.box(230, 80, 170, 110, "Engine\nMCTS in C++\ngathers batches", BLUE)
    d.box(500, 40, 220, 190, "Evaluator\nmerges the batches\nof all clients,\nchooses batch sizes", GREEN)
    for y in (55, 135, 215):
        d.arrow(150, y, 228, 135)
    d.arrow(400, 120, 498, 120)
    d.arrow(500, 150, 402, 150)
    d.text(450, 110, "positions", "middle")
    d.text(450, 172, "evaluations", "middle")
    d.text(450, 200, "by ZeroMQ", "middle", ' font-size="12"')
    for index, name in enumerate(("AMD GPU", "NVIDIA GPU", "CPU")):
        d.box(
            500 + 75 * index,
            250,
            70,
            34,
            name.split()[-1] if name == "CPU" else name.replace(" ", "\n"),
            AMBER,
        )
        d.arrow(535 + 75 * index, 230, 535 + 75 * index, 248)
    return d.svg()


def batch() -> str:
    """Draw the path of a batch from the search and back."""
    d = Drawing(760, 210, "The life of a batch")
    steps = (
        ("Select\nleaves of the\nsearch tree", BLUE),
        ("Encode\npositions and\nlegal moves", BLUE),
        ("Queue\nby latency\nclass", GREEN),
        ("Merge\nwith other\nclients", GREEN),
        ("Compute\none launch\nof a graph", AMBER),
    )
    for index, (text, fill) in enumerate(steps):
        x = 20 + 148 * index
        d.box(x, 20, 120, 76, text, fill)
        if index:
            d.arrow(x - 28, 58, x - 2, 58)
    d.box(316, 130, 268, 50, "Answer\npolicy, WDL, moves left", GREEN)
    d.box(20, 130, 268, 50, "Back up\nvalues along the path to the root", BLUE)
    d.arrow(672, 96, 672, 155, tip=False)
    d.arrow(672, 155, 586, 155)
    d.arrow(316, 155, 290, 155)
    d.text(80, 202, "blue: engine", "middle", ' font-size="12"')
    d.text(450, 202, "green: evaluator", "middle", ' font-size="12"')
    d.text(672, 202, "amber: device", "middle", ' font-size="12"')
    return d.svg()


def tree() -> str:
    """Draw the records of the search tree, as declared in engine/core/tree/node.h."""
    d = Drawing(760, 256, "Memory of the search tree")
    fields = (
        (8, "W - L sum"),
        (4, "draw"),
        (4, "moves left"),
        (4, "visits"),
        (4, "in flight"),
        (4, "edges"),
        (4, "children"),
        (4, "counts, bounds"),
        (4, "value, spread"),
    )
    d.text(20, 24, "Node, 40 bytes", more=' font-weight="bold"')
    x, scale = 20, 18
    for size, name in fields:
        width = size * scale
        d.box(x, 36, width, 46, "\n".join([name.split()[0], " ".join(name.split()[1:])]).strip(), BLUE)
        d.text(x + width // 2, 98, f"{size} B", "middle", ' font-size="12"')
        x += width
    d.text(20, 150, "Edges: 4 bytes a legal move, best prior first", more=' font-weight="bold"')
    for index in range(8):
        text = EDGES[index] if index < len(EDGES) else "…"
        d.box(20 + 84 * index, 162, 84, 46, text, GREEN)
    d.text(
        20, 238, "Children: 4 bytes a slot, for the visited prefix of the edges", more=' font-weight="bold"'
    )
    d.arrow(20 + 18 * 26, 104, 400, 160)
    return d.svg()


def knee() -> str:
    """Draw a latency curve and its knee: lc0's BT4 on an H200 (evaluator/scheduling/simulation.py)."""
    from benchmarks.batching.simulation import CURVES

    curve = CURVES["h200-bt4"]
    best = max(size / ms for size, ms in curve.items() if ms <= 100)
    size_at_knee = next(size for size, ms in curve.items() if size / ms >= 0.95 * best)
    d = Drawing(760, 340, "Throughput by batch size")
    left, bottom, width, height = 80, 280, 620, 230
    positions = [(size, size / ms * 1000) for size, ms in curve.items()]
    most = 1.1 * max(rate for _, rate in positions)
    x_of = {size: left + width * index / (len(curve) - 1) for index, size in enumerate(curve)}
    d.arrow(left, bottom, left + width + 20, bottom)
    d.arrow(left, bottom, left, bottom - height - 20)
    for size, x in x_of.items():
        d.text(x, bottom + 20, f"{size:,}", "middle")
    d.text(left + width / 2, bottom + 44, "positions in a batch", "middle")
    for rate in (5000, 10000, 15000, 20000):
        y = bottom - height * rate / most
        d.text(left - 8, y + 5, f"{rate:,}", "end")
        d.arrow(left - 4, y, left, y, tip=False)
    d.text(left - 60, bottom - height - 30, "positions/s", "start")
    points = [(x_of[size], bottom - height * rate / most) for size, rate in positions]
    d.line(points, "#3565c9")
    for point in points:
        d.circle(*point, "#3565c9")
    x, y = points[list(curve).index(size_at_knee)]
    d.circle(x, y, "#d9480f")
    d.text(x, y + 34, f"knee: {size_at_knee} positions,", "middle")
    d.text(x, y + 52, f"{curve[size_at_knee]:.1f} ms", "middle")
    return d.svg()


DIAGRAMS = {"processes": processes, "batch": batch, "tree": tree, "knee": knee}

if __name__ == "__main__":
    for name, draw in DIAGRAMS.items():
        (IMAGES / f"{name}.svg").write_text(draw(), "utf-8")
