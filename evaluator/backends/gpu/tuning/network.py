# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures all matrix products of a network at all batch sizes."""

from __future__ import annotations

from collections.abc import Callable

from evaluator.backends.common.device_lease import exclusive_lease
from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.device import DeviceInfo
from evaluator.backends.gpu.driver.target import Precision
from evaluator.backends.gpu.plan.needs import needs_of
from evaluator.backends.gpu.plan.plan import Plan
from evaluator.backends.gpu.plan.quantised import WeightFormat
from evaluator.backends.gpu.plan.tiles import Measured, estimates, model_chooser
from evaluator.backends.gpu.run.buckets import usual_buckets
from evaluator.backends.gpu.tuning.child import TuningJob, measure_in_child
from evaluator.network.spec import NetworkSpec


def tune_network(
    network: NetworkSpec,
    info: DeviceInfo,
    precision: Precision,
    weights: WeightFormat | None,
    *,
    fp8: NetworkSpec | None = None,
    rebuild: bool,
    progress: Callable[[str], None],
) -> list[tuple[Product, list[Measured]]]:
    """Return every product with its candidates, fastest first.

    Child processes measure them and write the cache. weights: format to which the network's were rounded.
    fp8: the network with 8-bit products for large batches. rebuild: measure also what is in the cache. Raises
    DeviceError and PlanError.
    """
    model = model_chooser(info.target, precision, info.multiprocessors)
    # A plan requests only the measurements it needs; this one requests all that any plan needs.
    plan = Plan(
        network,
        info.target,
        precision,
        model,
        weights,
        rounded=fp8,
        measurements=lambda product: estimates(product, info.target, precision, info.multiprocessors),
    )
    needs = needs_of(plan, usual_buckets(info), info.multiprocessors)
    found = measure_in_child(TuningJob(info, precision, needs, rebuild=rebuild), exclusive_lease, progress)
    return [(product, found[product]) for product in needs.products]
