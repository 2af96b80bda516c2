# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes the roundings to 8 bits of the included networks (evaluator/backends/onnx/roundings.py).

    python scripts/int8_roundings.py

Run it when a network changes. The files depend on the processor's float32 arithmetic in the last bits.
"""

from __future__ import annotations

from evaluator.backends.onnx import backend
from evaluator.backends.onnx.roundings import encoded, shipped_file
from evaluator.network import SHIPPED_NETWORKS, load_network


def main() -> None:
    for name, path in SHIPPED_NETWORKS.items():
        network, file = load_network(path), shipped_file(name)
        roundings, error = backend.measured_roundings(network)
        backend.check_error(error)
        file.write_bytes(encoded(network, roundings, error))
        print(f"{file}: {error}")


if __name__ == "__main__":
    main()
