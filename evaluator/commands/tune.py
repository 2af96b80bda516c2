"""`python -m evaluator tune`: measure the ways to compute a network's matrix products on a GPU."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console
from rich.table import Table

from evaluator.backends import BackendError
from evaluator.commands.verify import network_of
from evaluator.gpu.device import DeviceError
from evaluator.network import SHIPPED_NETWORK, NetworkError

HELP = "measure the candidates for every matrix product on a GPU, keep the fastest and print the table"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--network", default=str(SHIPPED_NETWORK), metavar="FILE", help="or random:SHAPE (default: shipped)"
    )
    parser.add_argument("--device", default="", metavar="NAME", help="as `devices` lists it")
    parser.add_argument("--precision", default="fp16", help="fp16, bf16 or fp32 (default fp16)")
    parser.add_argument("--rebuild", action="store_true", help="measure again what is in the cache")


def run(arguments: argparse.Namespace) -> int:
    from evaluator.backends.gpu import tune

    console = Console(markup=False, highlight=False)
    try:
        network = network_of(arguments.network)
        table = Table("m", "n", "k", "activation", "then", "fastest", "us", "next", "us")
        for product, measured in tune(
            network,
            device=arguments.device,
            precision=arguments.precision,
            rebuild=arguments.rebuild,
            progress=lambda text: console.print(text, style="dim"),
        ):
            extras = [
                *(["residual"] if product.residual else []),
                *(["rows"] if product.followed else []),
                *(["convolution"] if product.convolution else []),
            ]
            shown = [text for each in measured[:2] for text in (str(each.choice), f"{each.microseconds:.1f}")]
            table.add_row(
                *map(str, (product.m, product.n, product.k, product.activation.value)),
                " ".join(extras),
                *shown,
            )
    except (NetworkError, BackendError, DeviceError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    console.print(table)
    return 0
