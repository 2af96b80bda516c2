# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m evaluator verify`: compares a backend's outputs with the float64 reference."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from evaluator.backends import BackendError, open_backend, parse_backend
from evaluator.backends.common.agreement import TIE, Agreement, agreement
from evaluator.backends.common.base import Backend
from evaluator.backends.common.child import ChildEnded, run_in_child
from evaluator.backends.common.probe import probe_batch
from evaluator.backends.gpu import options as gpu_options
from evaluator.backends.reference.backend import ReferenceBackend
from evaluator.network import SHIPPED_NETWORKS, NetworkError, load_network
from evaluator.network.random_network import SHAPES, random_network
from evaluator.network.spec import NetworkSpec

HELP = "compare a backend with the float64 reference; the exit status is 1 if an error exceeds its limit"


ARGUMENTS = {
    "--network* FILE": f"network file, or random:SHAPE with SHAPE one of {', '.join(SHAPES)}; may be "
    "repeated (default: the included networks)",
    "--backend NAME = gpu": "backend with options, such as gpu:weights=int8 (default: gpu)",
    "--positions N = 64": "number of positions (default: %(default)d)",
    "--precision": "say what precision=auto chooses for each network on this GPU, with its errors and speeds",
    "--json": "print JSON",
}


def run(arguments: argparse.Namespace) -> int:
    if arguments.positions < 1:
        print("error: --positions must be at least 1", file=sys.stderr)
        return 2
    rows: list[dict[str, Any]] = []
    work, show = (chosen_precision, show_precisions) if arguments.precision else (compared, show_errors)
    try:
        name, options = parse_backend(arguments.backend)
        for file in arguments.network or SHIPPED_NETWORKS:
            rows.append(run_in_child(work, file, name, options, arguments.positions))
    except ChildEnded as ended:
        if rows:
            show(rows, arguments.json)
        print(f"error: {file} on {arguments.backend}: {ended}", file=sys.stderr)
        return 1
    except (NetworkError, BackendError, ValueError) as error:
        without_gpu = str(error).startswith("backend gpu cannot run here")
        hint = "; --backend onnx compares the one for processors" if without_gpu else ""
        print(f"error: {error}{hint}", file=sys.stderr)
        return 1
    show(rows, arguments.json)
    return 0 if all(row.get("ok", True) for row in rows) else 1


def compared(file: str, name: str, options: dict[str, Any], positions: int) -> dict[str, Any]:
    """Return a backend's errors with one network. Raises NetworkError and BackendError."""
    # The formats' warnings refer to this command, which prints the error itself.
    network = network_of(file)
    with _quiet(gpu_options.log), open_backend(name, network, **options) as backend:
        positions = min(positions, backend.max_batch)
        found = found_agreement(network, backend, positions)
        facts = {"network": network.name, "device": backend.device, "positions": positions}
        limits = {"limits": asdict(backend.tolerance), "ok": found.within(backend.tolerance)}
        return facts | asdict(found) | limits


def found_agreement(network: NetworkSpec, backend: Backend, positions: int) -> Agreement:
    """Return how far a backend's outputs for made-up positions are off the float64 reference's."""
    batch = probe_batch(positions, seed=11)
    expected = ReferenceBackend(network, dtype="float64").evaluate(batch)
    return agreement(backend.evaluate(batch), expected, batch, backend.tolerance)


@contextmanager
def _quiet(log: logging.Logger) -> Iterator[None]:
    """Context manager that silences the warnings of a log."""
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def chosen_precision(file: str, name: str, options: dict[str, Any], _positions: int) -> dict[str, Any]:
    """Return what precision=auto chooses, measured now if it is not known. Raises NetworkError and
    BackendError."""
    network = network_of(file)
    options = {**options, "precision": "auto", "tuning": "before"}
    with open_backend(name, network, **options) as backend:
        return {"network": network.name, "device": backend.device, "precision": backend.precision}


def show_precisions(rows: list[dict[str, Any]], as_json: bool) -> None:
    """Print the choices and a match that checks them, or JSON."""
    if as_json:
        print(json.dumps(rows))
        return
    for row in rows:
        print(f"{row['network']} on {row['device']}: {row['precision']}")
    print(
        "a match of both: wavefront match --nodes 400 --games 2000 --weights FILE "
        "--player name=fp8,backend=gpu:precision=fp8 --player name=fp16,backend=gpu:precision=fp16"
    )


def show_errors(rows: list[dict[str, Any]], as_json: bool) -> None:
    """Print the comparison as a table or as JSON."""
    if as_json:
        print(json.dumps(rows))
    else:
        table = Table(Column("network", overflow="fold", min_width=max(map(len, SHIPPED_NETWORKS))))
        for title in ("logits", "spread", "W D L", "moves\nleft", "same\nmove", "as\ngood"):
            table.add_column(title)
        table.add_column("", no_wrap=True)
        for row in rows:
            table.add_row(
                str(row["network"]),
                *(f"{row[key]:.2g}" for key in ("logits", "spread", "wdl", "moves_left")),
                *(f"{row[key]:.1%}" for key in ("same_best_move", "as_good_a_move")),
                "ok" if row["ok"] else "OFF",
            )
        console = Console(markup=False, highlight=False)
        console.print(table)
        made_up = f"{rows[0]['positions']} made-up positions"
        console.print(f"largest errors of {rows[0]['device']}, {made_up}", soft_wrap=True)
        console.print(_explanation(rows[0]["limits"]), soft_wrap=True)


def _explanation(limits: dict[str, float]) -> str:
    spread = f" or {limits['logits_of_spread']:.0%} of the spread" if limits["logits_of_spread"] else ""
    return (
        f"limits: logits {limits['logits']:g}{spread}, W D L {limits['wdl']:g}, the same best move or one as "
        f"good in {limits['best_moves']:.0%} (as good: within {TIE:g} of the logits' limit of the best)"
    )


def network_of(text: str) -> NetworkSpec:
    """Return the network of a file, or a random one for random:SHAPE. Raises NetworkError."""
    if text.startswith("random:"):
        return random_network(text.removeprefix("random:"))
    return load_network(text)
