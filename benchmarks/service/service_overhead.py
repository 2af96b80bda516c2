# SPDX-License-Identifier: GPL-3.0-or-later
"""Overhead of the service: positions per second of a bare backend, and through the evaluator process.

    python -m benchmarks.service.service_overhead [--seconds 2] [--network FILE] [--json]

Two requests are in flight. The `random` backend is almost free, so its row is the limit of the service.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from benchmarks.common.installation import CHECKOUT, Installation
from benchmarks.common.processes import CommandError


@dataclass(frozen=True, slots=True)
class Overhead:
    """Positions per second of one backend in batches of one size: alone, and through the service."""

    backend: str
    batch: int
    bare: float
    served: float

    @property
    def share(self) -> float:
        """Percentage of the bare rate that the service reaches."""
        return 100 * self.served / self.bare


def measure(
    backend: str,
    batches: Sequence[int],
    seconds: float,
    network: str = "",
    *,
    installation: Installation = CHECKOUT,
) -> list[Overhead]:
    """Measure one backend at several batch sizes. seconds: for each size, twice. Raises CommandError."""

    def curve(*flags: str) -> dict[int, float]:
        command = [*installation.evaluator, "bench", "--json", "--backend", backend]
        command += ["--batch", ",".join(map(str, batches)), "--time-limit", str(seconds * len(batches))]
        command += ["--network", network] if network else []
        points = installation.json_of([*command, *flags])["curve"]
        return {point["batch"]: point["positions_per_second"] for point in points}

    bare, served = curve(), curve("--service")
    return [Overhead(backend, batch, rate, served[batch]) for batch, rate in bare.items()]


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="per batch size (default: 2)")
    parser.add_argument("--network", metavar="FILE", help="lc0 network file (default: the shipped one)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    try:
        rows = measure("random", (64, 256, 512, 1024), arguments.seconds)
        rows += measure("onnx", (8, 32, 128), arguments.seconds, arguments.network or "")
    except CommandError as error:
        raise SystemExit(str(error)) from None
    if arguments.json:
        print(json.dumps([{**asdict(row), "share": row.share} for row in rows]))
        return
    print("| backend | batch | bare, positions/s | through the service | share |")
    print("|---|---|---|---|---|")
    for row in rows:
        print(f"| {row.backend} | {row.batch} | {row.bare:,.0f} | {row.served:,.0f} | {row.share:.0f} % |")


if __name__ == "__main__":
    main()
