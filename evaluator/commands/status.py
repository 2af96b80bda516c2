"""`python -m evaluator status`: health, networks and metrics of a running evaluator."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

HELP = "show the health, networks and metrics of a running service"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--address, --timeout and --json."""
    parser.add_argument("--address", help="where it listens (default: the well-known addresses)")
    parser.add_argument(
        "--timeout", type=float, default=5.0, metavar="S", help="seconds (default: %(default)g)"
    )
    parser.add_argument("--json", action="store_true", help="print the whole status as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the status; returns 0 if the evaluator is ready, 1 if it is not or nobody answers."""
    from protocol.addresses import default_addresses
    from protocol.client import EvaluatorClient
    from protocol.errors import EvaluatorError

    addresses = [arguments.address] if arguments.address else default_addresses()
    problem = ""
    for address in addresses:
        try:
            with EvaluatorClient(address, timeout=arguments.timeout, handshake=False) as client:
                status = client.status()
            break
        except EvaluatorError as error:
            problem = str(error)
    else:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps({"address": address, **asdict(status)}, default=str))
        return 0 if status.ready else 1
    state = "draining" if status.draining else "ready" if status.ready else "loading"
    print(f"{address}: {state}")
    for network in status.networks:
        print(
            f"network {network.name}: {network.backend} on {network.device}, input format "
            f"{network.input_format}, best batch {network.recommended_batch}"
        )
    for name, value in status.metrics.items():
        shown = (
            ", ".join(f"{key} {item}" for key, item in value.items()) if isinstance(value, dict) else value
        )
        print(f"{name}: {shown}")
    return 0 if status.ready else 1
