# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m evaluator bench`: positions per second and milliseconds by batch size, with the knee marked."""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evaluator.scheduling.latency import LADDER, LatencyModel
from evaluator.settings import ALONE
from protocol.common.outputs import OVERWRITE, figure_of, guard_output, is_figure, save_figure

HELP = "measure positions per second and milliseconds by batch size; the knee is the recommended batch size"

IN_FLIGHT = 2
"""Requests in flight when measuring through the service, the same as an engine's."""

WINDOWS = 8
"""Measuring windows per size when measuring through the service."""


ARGUMENTS = {
    "--network FILE": "lc0 network file (default: the included one for the device)",
    "--backend NAME = auto": "backend, as for `serve` (default: %(default)s)",
    "--threads N:int": "CPU threads (default: the backend's choice)",
    "--batch N[,N…]": "batch sizes (default: 1 to 1024, as far as they fit)",
    "--time-limit S = 5.0": "total seconds (default: %(default)g)",
    "--service": "measure through ZeroMQ and the service, two requests in flight",
    "--json": "print JSON",
    "--plot FILE.png": "draw the curve (needs the plot extra)",
    **OVERWRITE,
}


def run(arguments: argparse.Namespace) -> int:
    """Measure and print. Returns 2 for wrong arguments, 1 if the backend cannot be opened or fails."""
    try:
        sizes = _sizes(arguments.batch)
        if not arguments.time_limit > 0:
            raise ValueError("--time-limit must be more than 0 seconds")
        if arguments.threads is not None and arguments.threads < 1:
            raise ValueError("--threads must be at least 1")
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if arguments.plot:
        reads = [arguments.network] if arguments.network else []
        guard_output(arguments.plot, reads, overwrite=arguments.overwrite, own=is_figure)
    explicit = arguments.batch is not None
    try:
        report = (_through_service if arguments.service else _direct)(arguments, sizes, explicit)
    except Exception as error:  # of a network, a backend or the service: show its message
        print(f"error: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps(report))
    else:
        _print_table(report)
    if arguments.plot:
        _plot(arguments.plot, report)
    return 0


def _sizes(text: str | None) -> list[int]:
    if text is None:
        return [size for size in LADDER if size <= 1024]
    try:
        sizes = sorted({int(part) for part in text.split(",")})
    except ValueError:
        sizes = []
    if not sizes or sizes[0] < 1 or sizes[-1] > 65536:
        raise ValueError(f"--batch {text}: give sizes from 1 to 65536, as in 1,32,256")
    return sizes


def _direct(arguments: argparse.Namespace, sizes: list[int], explicit: bool) -> dict[str, Any]:
    """Measure the backend itself, in this process."""
    from evaluator.devices.opening.calibration import time_batches
    from evaluator.devices.opening.loading import Loader, needs_network

    settings = replace(
        ALONE,
        backend=(arguments.backend,),
        threads=arguments.threads or 0,
        calibration_s=0.01,
        latency_cache=False,
    )
    path = arguments.network or ("" if needs_network(settings.backend) else None)
    network = Loader(settings).load(path)
    try:
        backend = network.runners[0].backend
        if explicit and sizes[-1] > backend.max_batch:
            raise ValueError(f"{backend.name} takes at most {backend.max_batch} positions per batch")
        points: dict[int, float] = {}
        if explicit:
            # Explicit sizes get equal shares of the time, and none is skipped.
            for size in sizes:
                share_s = arguments.time_limit / len(sizes)
                points |= time_batches(backend, [size], share_s, repeats=100_000)
        else:
            points = time_batches(backend, sizes, arguments.time_limit, repeats=10, stop_when_flat=False)
        return _report(backend.device, network.info.name, points, backend.max_batch, backend.buckets)
    finally:
        network.close()


def _through_service(arguments: argparse.Namespace, sizes: list[int], explicit: bool) -> dict[str, Any]:
    """Measure an evaluator process as a client with IN_FLIGHT requests in flight."""
    from evaluator.backends.common.probe import probe_batch
    from protocol import EvaluatorClient
    from protocol.common.processes import child_command

    command = child_command("evaluator", "serve", "--embedded", "--backend", arguments.backend)
    if arguments.network:
        command += ["--network", arguments.network]
    if arguments.threads:
        command += ["--threads", str(arguments.threads)]
    process = subprocess.Popen(
        [*command, "--log-level", "warning"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    )
    try:
        assert process.stdout is not None
        assert process.stdin is not None
        bound = json.loads(process.stdout.readline() or '{"message": "the evaluator did not start"}')
        if "address" not in bound:
            raise ValueError(bound["message"])
        points: dict[int, float] = {}
        with EvaluatorClient(bound["address"], timeout=120.0) as client:
            # The service may open slowly; the time limit is for measuring.
            client.evaluate(probe_batch(sizes[0]))
            start = time.perf_counter()
            for index, size in enumerate(sizes):
                left_s = arguments.time_limit - (time.perf_counter() - start)
                if points and not explicit and left_s <= 0:
                    break
                batch = probe_batch(size)
                points[size] = _pipelined_ms(client, batch, max(0.0, left_s / (len(sizes) - index)))
            info = client.network
            return _report(info.device, info.name, points, max(points), ())
    finally:
        if process.stdin is not None:
            process.stdin.close()
        process.wait()


def _pipelined_ms(
    client: Any, batch: Any, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return the milliseconds per request with IN_FLIGHT requests in flight: the best of WINDOWS windows.

    seconds: for all windows. A window lasts at least one round of IN_FLIGHT answers. clock: in seconds.
    """
    for _ in range(IN_FLIGHT):
        client.submit(batch)
    _receive(client, batch)  # a window starts and ends with an answer
    best = math.inf
    for _ in range(WINDOWS):
        start = clock()
        done = 0
        while done < IN_FLIGHT or clock() - start < seconds / WINDOWS:
            _receive(client, batch)
            done += 1
        best = min(best, (clock() - start) * 1000 / done)
        if seconds <= 0:
            break
    while client.in_flight:
        client.receive()
    return best


def _receive(client: Any, batch: Any) -> None:
    """Receive an answer and submit the batch again."""
    completed = client.receive()
    assert completed is not None
    completed.result()
    client.submit(batch)


def _report(
    device: str, network: str, points: dict[int, float], max_batch: int, buckets: Sequence[int]
) -> dict[str, Any]:
    model = LatencyModel(points, max(max_batch, *points), buckets)
    measured = {size: size / ms for size, ms in points.items()}
    knee = min(size for size, rate in measured.items() if rate >= 0.95 * max(measured.values()))
    return {
        "device": device,
        "network": network,
        "knee": knee if len(points) > 1 else model.knee,
        "curve": [
            {"batch": size, "ms": round(ms, 4), "positions_per_second": round(1000 * size / ms, 1)}
            for size, ms in sorted(points.items())
        ],
    }


def _print_table(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{report['network']} on {report['device']}")
    for heading in ("batch", "ms", "positions/s"):
        table.add_column(heading, justify="right")
    table.add_column("")
    best = max(point["positions_per_second"] for point in report["curve"])
    for point in report["curve"]:
        knee = point["batch"] == report["knee"]
        bar = "█" * round(30 * point["positions_per_second"] / best)
        table.add_row(
            str(point["batch"]),
            f"{point['ms']:.2f}",
            f"{point['positions_per_second']:.0f}",
            bar + (" ◀ knee" if knee else ""),
            style="bold" if knee else None,
        )
    Console(width=None if sys.stdout.isatty() else 100).print(table)


def _plot(path: str, report: dict[str, Any]) -> None:
    """Draw the curve. Raises PlotError."""
    sizes = [point["batch"] for point in report["curve"]]
    figure = figure_of(9, 5)
    throughput = figure.subplots()
    throughput.plot(
        sizes, [point["positions_per_second"] for point in report["curve"]], "o-", color="tab:blue"
    )
    throughput.set(xlabel="batch (positions)", ylabel="positions/s", xscale="log", ylim=(0, None))
    throughput.set_xticks(sizes, [str(size) for size in sizes], fontsize=8)
    throughput.minorticks_off()
    throughput.axvline(report["knee"], linestyle="--", color="gray", label=f"knee {report['knee']}")
    latency = throughput.twinx()
    latency.plot(sizes, [point["ms"] for point in report["curve"]], "s:", color="tab:red")
    latency.set(ylabel="ms per batch", ylim=(0, None))
    throughput.legend(loc="upper left")
    throughput.set_title(f"{report['network']} on {report['device']}")
    save_figure(figure, Path(path), dpi=120)
