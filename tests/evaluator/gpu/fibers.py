"""The gpu backend on CPU fibers: everything but the driver is what runs on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluator.backends.gpu import GpuBackend
from evaluator.gpu.compiler import Compiler
from evaluator.gpu.gemm import Choice, Product, model_chooser
from evaluator.gpu.target import Precision
from evaluator.network import NetworkSpec
from tests.hip_runtime import cpu_device
from tests.hip_runtime.cpu_device import CpuDevice


class ModelTuner:
    """Chooses by the model, as timing fibers says nothing."""

    def __init__(self, device: CpuDevice, precision: Precision) -> None:
        self._choose = model_chooser(device.info.target, precision, device.info.multiprocessors)

    def choose(self, product: Product) -> Choice:
        return self._choose(product)

    def save(self) -> None:
        pass


def open_on_fibers(
    network: NetworkSpec,
    cache: Path,
    *,
    wave: int = 32,
    precision: Precision = Precision.FP32,
    buckets: tuple[int, ...] = (4,),
    deterministic: bool = False,
    memory: int = 1 << 33,
) -> GpuBackend:
    """Skips the calling test where fibers cannot run. cache: of compiled kernels."""
    reason = cpu_device.unavailable()
    if reason is not None:
        pytest.skip(reason)
    device = CpuDevice(wave, memory)
    return GpuBackend(
        network,
        device,
        precision=precision,
        deterministic=deterministic,
        buckets=buckets,
        compiler=Compiler(device, cache_folder=cache),
        tuner=None if deterministic else ModelTuner(device, precision),
    )
