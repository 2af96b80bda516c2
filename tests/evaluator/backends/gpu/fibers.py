# SPDX-License-Identifier: GPL-3.0-or-later
"""The gpu backend on the stand-in runtime, whose kernels run on CPU fibers: everything from hip-python up is
what runs on an AMD GPU."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from evaluator.backends.common.probe import probe_batch
from evaluator.backends.gpu.backend import GpuBackend
from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.compiler import Compiler
from evaluator.backends.gpu.driver.device import Gpu
from evaluator.backends.gpu.driver.discovery import open_device
from evaluator.backends.gpu.driver.target import Precision
from evaluator.backends.gpu.opening import OpenNetwork, Wanted
from evaluator.backends.gpu.options import Formats
from evaluator.backends.gpu.plan.needs import Needs
from evaluator.backends.gpu.plan.quantised import WeightFormat
from evaluator.backends.gpu.plan.tiles import Choice, Measured, estimates, model_chooser
from evaluator.backends.gpu.run.in_flight import DIRECT_POSITIONS
from evaluator.backends.reference.backend import ReferenceBackend
from evaluator.network import NetworkSpec
from evaluator.network.random_network import NetworkShape
from protocol.batch import EvaluationBatch
from tests.hip_runtime.standin import Runtime

SHAPE = NetworkShape(
    16, layers=1, heads=2, ffn=16, smolgen=(2, 8, 4), policy_width=16, value_channels=2, value_hidden=8
)
COPIED = DIRECT_POSITIONS + 1
"""Positions of a batch that is copied to the device and back."""

PASS_US = 20.0
"""Of a pass over rows: more than what our own whole products lose to others in a small network."""


class ModelTuner:
    """Chooses by the model, as timing fibers says nothing."""

    def __init__(self, device: Gpu, precision: Precision) -> None:
        self._of = device.info.target, precision, device.info.multiprocessors

    def expect(self, needs: Callable[[], Needs]) -> None:
        pass

    def choose(self, product: Product) -> Choice:
        return model_chooser(*self._of)(product)

    def measurements(self, product: Product) -> list[Measured]:
        after = PASS_US if product.followed else 0.0
        return [replace(one, microseconds=one.microseconds + after) for one in estimates(product, *self._of)]

    def save(self) -> None:
        pass


def cache_with_kernels(folder: Path, kernel_cache: Path) -> Path:
    """A cache folder in which nothing is measured, but whose kernels are those that other tests compile."""
    kernel_cache.mkdir(exist_ok=True)
    (folder / "wavefront").mkdir(parents=True)
    (folder / "wavefront" / "kernels").symlink_to(kernel_cache)
    return folder


def open_amd(index: int = 0) -> Gpu:
    """A device of the stand-in runtime, through hip-python."""
    from evaluator.backends.gpu.driver.amd import describe

    return open_device(describe(index))


def open_on_fibers(
    runtime: Runtime, network: NetworkSpec, cache: Path, *, devices: str = "gfx1100", **options: Any
) -> GpuBackend:
    """On the first of `devices`, which the runtime is from here on. cache: of compiled kernels."""
    runtime.reset(devices)
    return open_again(network, cache, **options)


def open_again(
    network: NetworkSpec,
    cache: Path,
    *,
    device: int = 0,
    precision: Precision = Precision.FP32,
    weights: WeightFormat | None = None,
    buckets: tuple[int, ...] = (4,),
    deterministic: bool = False,
    check: bool = True,
) -> GpuBackend:
    """On one of the devices that the runtime has already."""
    taken = open_amd(device)
    wanted = Wanted(Formats(precision, weights), deterministic, buckets, check=check)
    tuner = None if deterministic else ModelTuner(taken, precision)
    compiler = Compiler(taken, cache_folder=cache)
    return GpuBackend(OpenNetwork(network, taken, wanted, compiler=compiler, tuner=tuner))


def right(backend: GpuBackend, result: EvaluationBatch, count: int, seed: int) -> bool:
    """Whether it is what the reference computes for `probe_batch(count, seed=seed)`."""
    expected = ReferenceBackend(backend.network).evaluate(probe_batch(count, seed=seed))
    return (
        np.allclose(result.logits, expected.logits, atol=1e-4)
        and np.allclose(result.wdl, expected.wdl, atol=1e-5)
        and np.allclose(result.moves_left, expected.moves_left, atol=2e-3)
    )


def evaluates(backend: GpuBackend, count: int, seed: int) -> bool:
    """Whether the backend evaluates that batch now, and right."""
    return right(backend, backend.evaluate(probe_batch(count, seed=seed)), count, seed)
