"""All matrix products of a network at every batch size, measured."""

from __future__ import annotations

from collections.abc import Callable

from evaluator.gpu.blas.discovery import open_libraries
from evaluator.gpu.blas.product import Product
from evaluator.gpu.driver.compiler import Compiler
from evaluator.gpu.driver.device import Device
from evaluator.gpu.driver.target import Precision
from evaluator.gpu.plan.needs import needs_of
from evaluator.gpu.plan.plan import Plan
from evaluator.gpu.plan.quantised import WeightFormat
from evaluator.gpu.plan.tiles import Measured
from evaluator.gpu.run.buckets import usual_buckets
from evaluator.gpu.tuning.tune import Tuner
from evaluator.network.spec import NetworkSpec


def tune_network(
    network: NetworkSpec,
    device: Device,
    precision: Precision,
    weights: WeightFormat | None,
    *,
    eight_bits: NetworkSpec | None = None,
    rebuild: bool,
    progress: Callable[[str], None],
) -> list[tuple[Product, list[Measured]]]:
    """Every product with its candidates, the fastest first; what was measured is written to the cache.

    weights: the format that the network's were rounded to. eight_bits: the network with products of
    8 bits, where large batches compute that. rebuild: measure also what is in the cache already. Raises
    DeviceError and PlanError.
    """
    info = device.info
    libraries, problems = open_libraries(info, precision)
    try:
        for library in libraries:
            progress(f"with {library.version}")
        for name, why in problems.items():
            progress(f"without {name}: {why}")
        tuner = Tuner(device, Compiler(device), precision, libraries, progress=progress)
        plan = Plan(
            network,
            info.target,
            precision,
            tuner.choose,
            weights,
            rounded=eight_bits,
            measurements=tuner.measurements,
        )
        needs = needs_of(plan, usual_buckets(info), info.multiprocessors)
        return tuner.measured_products(needs, rebuild=rebuild)
    finally:
        for library in libraries:
            library.close()
