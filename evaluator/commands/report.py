# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m evaluator report`: writes one file for judging and optimising a GPU remotely."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from evaluator.backends import BackendError
from evaluator.backends.common import crashes
from evaluator.backends.common.child import ChildEnded, run_in_child
from evaluator.backends.gpu.backend import GpuBackend
from evaluator.backends.gpu.backend import open as open_gpu
from evaluator.backends.gpu.driver.device import DeviceError
from evaluator.backends.gpu.driver.discovery import Discovery, discover
from evaluator.backends.gpu.machine import impersonal, machine_facts
from evaluator.backends.gpu.options import PRECISIONS
from evaluator.backends.gpu.plan.program import LibraryStep
from evaluator.commands import devices
from evaluator.commands.verify import found_agreement, network_of
from protocol.common.files import write_atomically
from protocol.common.outputs import OVERWRITE, guard_output
from protocol.common.printing import ReportedError, failing_as

HELP = (
    "measure the GPUs and write a report to send in: versions, self-check, speed by batch size, times of "
    "launches, chosen kernels; without names of users, hosts and folders"
)

FORMAT = 1
"""Format of the file; a higher number may have other keys."""

_NETWORKS = ("wavefront-gpu", "random:bt4", "random:t82")
_PROFILED = (1, 8, 64)
"""Batch sizes, in addition to the largest, whose launches are timed individually."""

_COMPARED = 8
"""Positions compared with the reference: enough to find errors, few enough for large networks. With 8-bit
products, the minimum for them: smaller batches are computed in fp16."""


ARGUMENTS = {
    "--out FILE:Path = wavefront-report.json": "file to write (default: %(default)s)",
    "--network* FILE": "network file or random:SHAPE; may be repeated "
    "(default: wavefront-gpu, random:bt4 and random:t82)",
    "--device* NAME": "name from `devices`; may be repeated (default: all)",
    **OVERWRITE,
    f"--precision {{{','.join(PRECISIONS)}}} = fp16": "precision of the gpu backend; not every GPU has fp8 "
    "(default: fp16)",
    "--max-batch N:int": "largest batch size (default: as for `serve`)",
    "--no-libraries": "exclude vendor libraries; use own kernels only",
}


def run(arguments: argparse.Namespace) -> int:
    console = Console(markup=False, highlight=False, stderr=True)

    def say(text: str) -> None:
        console.print(text, style="dim", soft_wrap=True)

    networks = [name for name in arguments.network or () if not name.startswith("random:")]
    guard_output(arguments.out, networks, overwrite=arguments.overwrite, own=_is_report)
    report: dict[str, Any] = {
        "format": FORMAT,
        "machine": machine_facts(),
        "devices": [],
        "problems": {},
        "runs": [],
    }
    with failing_as(ReportedError, f"cannot write {arguments.out}"):
        names = arguments.network or list(_NETWORKS)
        for name in names:
            network_of(name)
        _write(arguments.out, report)
        report |= _list_devices(say)
        _write(arguments.out, report)
        names_of_devices = arguments.device or [each["device"] for each in report["devices"]]
        for device in names_of_devices:
            for name in names:
                say(f"{device}: {name} (the first time takes up to a minute)")
                report["runs"].append(_isolated(name, device, arguments, say))
                _write(arguments.out, report)
    if not names_of_devices:
        print("no GPU can be used here; the file says why:", file=sys.stderr)
        for vendor, problem in report["problems"].items():
            print(f"  {vendor}: {problem}", file=sys.stderr)
    failed = sum("error" in each for each in report["runs"])
    console.print(
        f"{arguments.out}: {len(report['runs'])} runs, {failed} failed. It is text: look at it, then send it "
        'in as docs/how-to/amd-report.md says, "A report".',
        soft_wrap=True,
    )
    return 1 if failed else 0


def _is_report(content: bytes) -> bool:
    return content.startswith(b'{\n "format": ') and b'"machine"' in content


def _write(path: Path, report: dict[str, Any]) -> None:
    """Replace the file by the report so far. Raises OSError."""
    write_atomically(path, (json.dumps(impersonal(report), indent=1) + "\n").encode())


def _list_devices(say: Callable[[str], None]) -> dict[str, Any]:
    """Find devices and problems in child processes, because a driver may crash."""
    try:
        found = run_in_child(discover_all)
    except ChildEnded as ended:
        say(f"error: while devices were listed {ended}")
        return {"problems": {"drivers": f"while devices were listed {ended}"}}
    listed = []
    for device in found.devices:
        try:
            listed.append(run_in_child(devices.facts, device))
        except ChildEnded as ended:
            say(f"error: {device.name}: {ended}")
            listed.append(devices.facts(device, str(ended)))
    return {"devices": listed, "problems": found.problems}


def discover_all() -> Discovery:
    """Find devices, including excluded ones: the report must cover failing devices."""
    with crashes.ignored():
        return discover()


def _isolated(
    network: str, device: str, arguments: argparse.Namespace, say: Callable[[str], None]
) -> dict[str, Any]:
    """Run `measured_run` in a child process. Its exit and last lines are part of the report."""
    try:
        return run_in_child(measured_run, network, device, arguments)
    except ChildEnded as ended:
        say(f"error: {ended}")
        return {
            "device": device,
            "network": network,
            "precision": arguments.precision,
            "error": str(ended),
            "stderr": ended.lines,
        }


def measured_run(name: str, device: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure one network on one device in this process. A failure is part of the report."""
    network = network_of(name)
    facts: dict[str, Any] = {"device": device, "network": network.name, "precision": arguments.precision}
    log = _Log()
    logging.getLogger("evaluator").addHandler(log)
    try:
        start = time.perf_counter()
        with (
            crashes.ignored(),
            open_gpu(
                network,
                device=device,
                precision=arguments.precision,
                max_batch=arguments.max_batch,
                libraries=not arguments.no_libraries,
            ) as backend,
        ):
            facts["seconds_to_open"] = round(time.perf_counter() - start, 2)  # including its self-check
            facts |= measurements(backend)
    except (BackendError, DeviceError) as error:
        facts["error"] = str(error)
        print(f"error: {error}", file=sys.stderr)
    finally:
        logging.getLogger("evaluator").removeHandler(log)
    facts["log"] = log.lines
    return facts


def measurements(backend: GpuBackend) -> dict[str, Any]:
    """Measure an open network on its device. Raises BackendError and DeviceError."""
    sizes = [size for size in backend.buckets if size in _PROFILED or size == backend.max_batch]
    return {
        "opened_as": backend.device,
        "agreement": _agreement(backend),
        "curve": [{"batch": size, "ms": round(backend.executor.time(size), 4)} for size in backend.buckets],
        "launches": {str(size): _launches(backend, size) for size in sizes},
    }


def _agreement(backend: GpuBackend) -> dict[str, Any]:
    positions = backend.formats.fp8 or _COMPARED
    found = found_agreement(backend.network, backend, min(positions, backend.max_batch))
    return asdict(found) | {"ok": found.within(backend.tolerance)}


def _launches(backend: GpuBackend, size: int) -> list[dict[str, Any]]:
    """Time each launch of a batch alone, and return the times with the kernel choices."""
    rows = []
    for step, milliseconds in backend.executor.profile(size):
        row: dict[str, Any] = {"label": step.label, "us": round(1000 * milliseconds, 2)}
        if isinstance(step, LibraryStep):
            product = asdict(step.product) | {"activation": step.product.activation.value}
            row |= {"library": step.library, "algorithm": step.algorithm.hex(), "product": product}
        else:
            row |= {"kernel": step.kernel.file, "constants": dict(step.kernel.constants), "grid": step.grid}
        rows.append(row)
    return rows


class _Log(logging.Handler):
    """Collects the evaluator's log while a network is opened and run."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname}: {record.getMessage()}")
