# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the table of docs/reports/index.md from the reports in that folder:

    python scripts/amd_reports.py

The reports are the *.json files of `wavefront-evaluator report`. Invalid files are named and skipped.
"""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from evaluator.commands.report import FORMAT  # noqa: E402

FOLDER = ROOT / "docs" / "reports"
MARK = "<!-- reports -->\n"

BATCHES = (1, 32, 1024)
"""Batch sizes with a column."""

NO_REPORT = "There is no report yet.\n"
_LONGEST = 60


@dataclass(frozen=True, slots=True)
class Row:
    """One network on one GPU. speeds: positions/s by batch size. result: "ok", or what went wrong."""

    file: str
    gpu: str
    target: str
    network: str
    precision: str
    driver: str
    result: str
    speeds: dict[int, float]


def rows(name: str, text: str) -> list[Row]:
    """Return the runs of a report. name: of the file. Raises ValueError, KeyError, TypeError or
    AttributeError if the report is invalid."""
    report = json.loads(text)
    if report["format"] != FORMAT:
        raise ValueError(f"its format is {report['format']!r}, not {FORMAT}")
    devices = {each["device"]: each for each in report["devices"]}
    if not report["runs"]:
        problem = "; ".join(str(each) for each in report["problems"].values()) or "nothing was measured"
        return [Row(name, "none", "", "", "", "", problem, {})]
    return [_row(name, run, devices[run["device"]]) for run in report["runs"]]


def _row(name: str, run: dict[str, Any], device: dict[str, Any]) -> Row:
    speeds = {int(each["batch"]): 1000 * each["batch"] / each["ms"] for each in run.get("curve", ())}
    if not all(batch > 0 and 0 < speed < math.inf for batch, speed in speeds.items()):
        raise ValueError("a time is not a positive number")
    if "error" in run:
        result = f"failed: {run['error']}"
    else:
        result = "ok" if run["agreement"]["ok"] is True else "wrong results"
    return Row(
        name,
        str(device["name"]),
        str(device["target"]),
        _network(run),
        str(run["precision"]),
        str(device["driver"]),
        result,
        speeds,
    )


def _network(run: dict[str, Any]) -> str:
    return str(run["network"]).removeprefix("random:")


def table(found: list[Row]) -> str:
    """Return the table, one line a run, the fastest GPU first."""
    heads = ["GPU", "network", *(f"at {batch}" for batch in BATCHES), "largest batch", "result", "driver"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for row in sorted(found, key=lambda row: -max(row.speeds.values(), default=0)):
        gpu = f"[{_text(row.gpu)}]({row.file})" + f" {_text(row.target)}" * bool(row.target)
        cells = [gpu, _text(f"{row.network} {row.precision}")]
        cells += [_speed(row, batch) for batch in BATCHES]
        cells += [_speed(row, max(row.speeds)) + f" at {max(row.speeds)}" if row.speeds else "–"]
        cells += [_text(row.result), _text(row.driver)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _speed(row: Row, batch: int) -> str:
    return f"{row.speeds[batch]:,.0f}" if batch in row.speeds else "–"


def _text(text: str) -> str:
    """Return a text of a report without characters that have a meaning in Markdown or HTML."""
    return re.sub(r"[^\w .,:;+()/%-]|_", " ", text)[:_LONGEST].strip()


def page(old: str, folder: Path) -> tuple[str, list[str]]:
    """Return the page with the table of a folder's reports, and what is wrong with skipped files."""
    found: list[Row] = []
    skipped: list[str] = []
    for path in sorted(folder.glob("*.json")):
        try:
            found += rows(path.name, path.read_text("utf-8"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
            skipped.append(f"{path.name}: skipped: {type(error).__name__}: {error}")
    head, mark, _ = old.partition(MARK)
    return head + mark + "\n" + (table(found) if found else NO_REPORT), skipped


def main(folder: Path = FOLDER) -> None:
    """Rewrite a folder's index.md, and print the skipped files."""
    index = folder / "index.md"
    text, skipped = page(index.read_text("utf-8"), folder)
    index.write_text(text, "utf-8")
    for line in skipped:
        print(line, file=sys.stderr)


if __name__ == "__main__":
    main()
