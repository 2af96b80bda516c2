# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m evaluator devices`: lists the usable GPUs, the others with the reason, and ONNX Runtime's
providers."""

from __future__ import annotations

import argparse
import json
import os
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from evaluator.backends.common import crashes
from evaluator.backends.common.crashes import Phase
from evaluator.backends.common.sensors import Sensors
from evaluator.backends.gpu.driver.device import DeviceError, DeviceInfo
from evaluator.backends.gpu.driver.discovery import discover, fastest, open_device, restrictions, subject_of
from evaluator.backends.gpu.driver.sensors import read_sensors
from evaluator.backends.gpu.driver.target import Precision

if TYPE_CHECKING:
    from evaluator.backends.onnx.providers import FoundProvider

HELP = "list the devices, the one that is used, and why others are not"


ARGUMENTS = {
    "--json": "print JSON",
    "--retry-gpu": "retry GPUs that are excluded because they crashed",
}


def run(arguments: argparse.Namespace) -> int:
    if arguments.retry_gpu:
        crashes.forget()
    found = discover()
    providers, provider_problems = _providers()
    threads = os.cpu_count() or 1
    if arguments.json:
        devices = [facts(each, found.excluded.get(each, "")) for each in found.devices]
        chosen = fastest(found.usable) if found.usable else None
        facts_of_all = {
            "devices": devices,
            "problems": found.problems,
            "excluded": [f"{each.vendor}:{each.index}" for each in found.excluded],
            "taken": None if chosen is None else f"{chosen.vendor}:{chosen.index}",
            "cpu": {"threads": threads},
            "restricted_by": restrictions(),
            "providers": providers,
            "provider_problems": provider_problems,
        }
        print(json.dumps(facts_of_all))
        return 0
    console = Console(markup=False, highlight=False)
    if found.devices:
        table = Table("device", "name", "target", "memory", "matrix unit", "driver", "power")
        for device in found.devices:
            shown = facts(device, found.excluded.get(device, ""))
            target = shown["target"] + (f" ({device.target.note})" if device.target.note else "")
            memory = f"{shown['memory_mb']} MB" + (", shared with the CPU" if device.integrated else "")
            used = shown["memory_used_mb"]
            memory += f", {used} MB in use" if used is not None else f", cannot be used: {shown['problem']}"
            power = str(Sensors(shown["watts"], shown["celsius"])) or "not told"
            unit = shown["matrix_unit"]
            table.add_row(shown["device"], device.name, target, memory, unit, device.driver, power)
        console.print(table)
        console.print(
            "Use one with --backend gpu:device=NAME, several with gpu:device=NAME+NAME or gpu:device=all.",
            soft_wrap=True,
        )
        if found.usable:
            console.print(_choice(found.usable), soft_wrap=True)
    for name, value in restrictions().items():
        console.print(f"{name}={value} selects and numbers the GPUs that the driver shows", soft_wrap=True)
    for vendor, problem in found.problems.items():
        console.print(f"{vendor}: {problem}", soft_wrap=True)
    for each in providers:
        name = f"{each['kind']} {each['name']}".rstrip()
        backend = f"onnx:provider={each['provider']}" + f",device={each['device']}" * bool(each["device"])
        console.print(f"ONNX Runtime: {name} ({each['source']}), with --backend {backend}", soft_wrap=True)
    for name, problem in provider_problems.items():
        console.print(f"ONNX Runtime: {name}: {problem}", soft_wrap=True)
    otherwise = "on request" if found.usable else "which --backend auto takes here"
    console.print(f"CPU: {threads} threads, with --backend onnx ({otherwise})", soft_wrap=True)
    return 0


def _providers() -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the devices of ONNX Runtime's providers, and the problems by provider."""
    try:
        from evaluator.backends.onnx.providers import found_providers
    except ImportError as error:  # onnxruntime is being exchanged, perhaps
        return [], {"cpu": str(error)}
    found = found_providers()
    return provider_facts(found), found.problems


def provider_facts(found: FoundProvider) -> list[dict[str, Any]]:
    """Return the devices of ONNX Runtime's providers. device: value of the option `device`."""
    return [
        {
            "provider": name,
            "device": index,
            "kind": device.kind,
            "name": device.name,
            "source": device.source,
        }
        for name in dict.fromkeys(device.provider.name for device in found.devices)
        for index, device in enumerate(found.of(name))
    ]


def _choice(usable: tuple[DeviceInfo, ...]) -> str:
    """Return which device is the default, and why."""
    chosen = fastest(usable)
    clock = f" x {chosen.clock_mhz} MHz" if chosen.clock_mhz else ""
    estimate = f"{chosen.compute_units} compute units{clock}, about {chosen.tflops:.3g} TFLOP/s in fp16"
    why = "the only one" if len(usable) == 1 else "the fastest of them by this estimate"
    if len(usable) > 1 and any(each.integrated and each.small for each in usable):
        why += "; small integrated GPUs come last"
    text = f"--backend gpu takes {chosen.vendor}:{chosen.index} ({chosen.name}): {estimate}; {why}."
    return text + " --backend auto compares it with the CPU, as it is small." * chosen.small


def facts(device: DeviceInfo, problem: str = "") -> dict[str, Any]:
    """Return the properties of a device with its used memory, or why it cannot be used.

    problem: why the device is not opened for this; empty to open it.
    """
    used = None
    try:
        if not problem:
            with crashes.attempt(subject_of(device), Phase.OPENING), closing(open_device(device)) as taken:
                used = taken.used_memory() >> 20
    except DeviceError as error:
        problem = str(error)
    return {
        "device": f"{device.vendor}:{device.index}",
        "name": device.name,
        "target": device.target.name,
        "known_target": device.target.is_listed,
        "target_note": device.target.note,
        "memory_mb": device.memory >> 20,
        "memory_used_mb": used,
        "problem": problem,
        "multiprocessors": device.multiprocessors,
        "matrix_unit": device.target.matrix_unit(Precision.FP16).value,
        "compute_units": device.compute_units,
        "clock_mhz": device.clock_mhz,
        "estimated_tflops": round(device.tflops, 1),
        "integrated": device.integrated,
        "driver": device.driver,
        **asdict(read_sensors(device)),
    }
