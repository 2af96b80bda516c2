# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m evaluator tune`: measures the candidates for a network's matrix products on a GPU."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from evaluator.backends import BackendError
from evaluator.backends.common.child import ChildEnded, run_in_child
from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.device import DeviceError, DeviceInfo
from evaluator.backends.gpu.driver.discovery import found_devices, select
from evaluator.backends.gpu.plan.program import PlanError
from evaluator.backends.gpu.plan.tiles import Measured
from evaluator.commands.verify import network_of
from evaluator.network.spec import Activation

HELP = "measure the candidates for every matrix product on a GPU, keep the fastest and print the table"


ARGUMENTS = {
    "--network FILE = wavefront-gpu": "network file or random:SHAPE (default: wavefront-gpu)",
    "--device NAME = ''": "name from `devices` (default: the fastest)",
    "--precision PRECISION = fp16": "fp16, bf16, fp32 or fp8 (default: fp16)",
    "--weights WEIGHTS = ''": "int8 or int4 (default: the precision)",
    "--rebuild": "measure cached choices again",
}


def run(arguments: argparse.Namespace) -> int:
    console = Console(markup=False, highlight=False)
    measured = measure(arguments, lambda text: console.print(text, style="dim", soft_wrap=True))
    console.print(table(measured))
    winners = Counter(choices[0].choice.library or "our own kernel" for _, choices in measured)
    shares = ", ".join(f"{name} for {count}" for name, count in winners.most_common())
    console.print(f"Fastest of {len(measured)} products: {shares}.", soft_wrap=True)
    return 0


def measure(
    arguments: argparse.Namespace, progress: Callable[[str], None]
) -> list[tuple[Product, list[Measured]]]:
    """Return every product with its candidates, fastest first. Raises NetworkError, BackendError and
    DeviceError."""
    from evaluator.backends.gpu.options import formats, fp8_network, rounded
    from evaluator.backends.gpu.tuning.network import tune_network

    network = network_of(arguments.network)
    chosen = formats(arguments.precision, arguments.weights)
    try:
        device = run_in_child(device_to_tune, arguments.device)
    except ChildEnded as ended:
        raise DeviceError(f"while devices were listed {ended}") from None
    network = rounded(network, chosen.weights)
    try:
        return tune_network(
            network,
            device,
            chosen.stored,
            chosen.weights,
            fp8=fp8_network(network, device.target) if chosen.fp8 else None,
            rebuild=arguments.rebuild,
            progress=progress,
        )
    except PlanError as error:
        raise BackendError(str(error)) from error


def device_to_tune(name: str) -> DeviceInfo:
    """Find the device in this process, where a driver may crash. Raises BackendError and DeviceError."""
    from evaluator.backends.gpu.backend import unavailable

    found = found_devices()
    if not found.devices:
        raise BackendError(
            f"{unavailable()}. There is nothing to tune: the CPU's matrix products are onnxruntime's"
        )
    return select(found.devices, name, found.excluded)


def table(measured: list[tuple[Product, list[Measured]]]) -> Table:
    """Return a table of every product's fastest choice, and the best of the other kind (own or library)."""
    result = Table()
    for title in ("m x n x k", "with", "fastest", "us", "else", "us"):
        figure = title in ("m x n x k", "us")
        result.add_column(
            title, no_wrap=figure, overflow="fold", justify="right" if title == "us" else "left"
        )
    for product, choices in measured:
        extras = [
            *([f"int{product.weight_bits}"] if product.weight_bits else []),
            *(["e4m3"] if product.e4m3 else []),
            *([product.activation.value] if product.activation is not Activation.NONE else []),
            *(["residual"] if product.residual else []),
            *(["rows"] if product.followed else []),
            *(["convolution"] if product.convolution else []),
        ]
        best = choices[0]
        others = [each for each in choices if each.choice.library != best.choice.library]
        shown = [best, *(others or choices[1:])[:1]]
        result.add_row(
            f"{product.m} x {product.n} x {product.k}",
            " ".join(extras),
            *(text for each in shown for text in (str(each.choice), f"{each.microseconds:.1f}")),
        )
    return result
