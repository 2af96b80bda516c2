# SPDX-License-Identifier: GPL-3.0-or-later
"""The product kernel for some hundred rows on Hopper: whom it is offered to, its registers, and its results,
on CPU fibers that have what it takes of that chip (tests/hip_runtime/hopper_on_fibers.h) and on the chip."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from evaluator.gpu.blas.product import Product
from evaluator.gpu.driver.compiler import KERNELS
from evaluator.gpu.driver.device import Box
from evaluator.gpu.driver.target import Precision, nvidia_target
from evaluator.gpu.plan import cluster_tiles
from evaluator.gpu.plan import weights as pack
from evaluator.gpu.plan.builder import ProgramBuilder
from evaluator.gpu.plan.cluster_tiles import ClusterTile
from evaluator.gpu.plan.products.epilogue import After
from evaluator.gpu.plan.products.launches import linear
from evaluator.gpu.plan.products.linear_layer import Linear
from evaluator.gpu.plan.program import Buffer, Launch, LeftNorm, Matrix, Space, TensorMap
from evaluator.gpu.plan.tiles import Choice
from evaluator.network.arithmetic import activate
from evaluator.network.spec import Activation, LayerNorm
from tests.evaluator.gpu.run.on_device import result_of, widened

HOPPER = nvidia_target(9, 0)
FIBERS = Path(__file__).parents[3] / "hip_runtime"
PRODUCT = Product(512, 1024, 1024, Activation.NONE, residual=True)

TILES = [
    ClusterTile(64, 64, 3),
    ClusterTile(64, 128, 2, cluster_m=2),
    ClusterTile(64, 64, 2, splits=2),
    ClusterTile(128, 128, 2, splits=4),
    ClusterTile(64, 128, 3, cluster_m=2, splits=2),
    ClusterTile(64, 192, 3, cluster_m=4),
]


@dataclass(frozen=True)
class Case:
    """A product. of_inputs, of_residual: the norms that are left to it. leaves: it leaves one."""

    shape: tuple[int, int, int]
    activation: Activation = Activation.NONE
    bias: bool = True
    residual: bool = False
    of_inputs: bool = False
    of_residual: bool = False
    leaves: bool = False


CASES = {
    "plain": Case((128, 64, 512), bias=False),
    "more rows and columns than the tiles": Case((200, 224, 456), Activation.MISH, residual=True),
    "a norm of the inputs": Case((130, 160, 256), Activation.RELU, of_inputs=True),
    "a norm of the residual": Case((192, 128, 712), residual=True, of_residual=True, leaves=True),
    "leaves a norm": Case((256, 192, 256), residual=True, leaves=True),
}


class Operands:
    """Random operands of a case, its layer, and what float64 makes of them."""

    def __init__(self, case: Case) -> None:
        m, n, k = case.shape
        rng = np.random.default_rng(m + n + k)
        self.case = case
        norm = LayerNorm(
            rng.uniform(0.5, 1.5, k if case.of_inputs else n).astype(np.float32),
            rng.standard_normal(k if case.of_inputs else n).astype(np.float32),
            1e-3,
        )
        self.a = pack.stored(rng.standard_normal((m, k), np.float32) + np.float32(0.3), Precision.FP16)
        weights = pack.stored(rng.standard_normal((n, k), np.float32) * np.float32(k**-0.5), Precision.FP16)
        biases = rng.standard_normal(n).astype(np.float32) if case.bias else None
        self.residual = pack.stored(rng.standard_normal((m, n), np.float32) + 1, Precision.FP16)
        self.layer = Linear(
            "product", n, weights, biases, case.activation, norm=norm if case.of_inputs else None
        )
        self.left = LeftNorm(norm, "before", Buffer(Space.WORK, "left"), (k if case.of_inputs else n) // 32)
        self.after = LayerNorm(np.ones(n, np.float32), np.zeros(n, np.float32), 1e-3)

    def build(self, tile: ClusterTile) -> ProgramBuilder:
        """A program of the product alone."""
        case = self.case
        m, n, k = case.shape
        b = ProgramBuilder(m, HOPPER, Precision.FP16, lambda _: Choice(None, cluster=tile))
        a = Matrix(Buffer(Space.WORK, "a"), m, k, k, norm=self.left if case.of_inputs else None)
        skip = Matrix(Buffer(Space.WORK, "residual"), m, n, n, norm=self.left if case.of_residual else None)
        linear(
            b,
            self.layer,
            a,
            "out",
            residual=skip if case.residual else None,
            after=After(self.after) if case.leaves else None,
            leave_norm=case.leaves,
        )
        return b

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What the product reads besides its weights."""
        of = widened(self.a if self.case.of_inputs else self.residual, Precision.FP16)
        parts = of.reshape(len(of), -1, 32)
        sums = np.stack([parts.sum(2), np.square(parts).sum(2)], axis=-1).swapaxes(0, 1)
        return {
            "a": self.a,
            "residual": self.residual,
            "left": np.ascontiguousarray(sums.astype(np.float32)),
        }

    def expected(self) -> NDArray[np.float64]:
        """[m, n]."""
        case, norm = self.case, self.left.norm
        x = widened(self.a, Precision.FP16)
        w = widened(self.layer.weights, Precision.FP16)
        x = _normalised(x) @ w.T if case.of_inputs else x @ w.T
        if self.layer.biases is not None:
            x = x + self.layer.biases
        if case.residual:
            skip = widened(self.residual, Precision.FP16)
            x = x + (_normalised(skip) * norm.gammas + norm.betas if case.of_residual else skip)
        return np.asarray(activate(case.activation, x), np.float64)


def _normalised(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Without gammas and betas, which for inputs are in weights and bias."""
    x = x - x.mean(1, keepdims=True)
    return np.asarray(x / np.sqrt(np.square(x).mean(1, keepdims=True) + 1e-3))


def check(found: NDArray[np.float64], expected: NDArray[np.float64]) -> None:
    assert np.linalg.norm(found - expected) / np.linalg.norm(expected) < 1e-3
    assert np.abs(found - expected).max() / np.abs(expected).max() < 2e-3


# -- on CPU fibers -----------------------------------------------------------------------------------------


class FiberMap(ctypes.Structure):
    """As TensorMap in hopper_on_fibers.h."""

    _fields_ = (
        ("memory", ctypes.c_void_p),
        ("sizes", ctypes.c_long * 5),
        ("strides", ctypes.c_long * 5),
        ("box", ctypes.c_int * 5),
        ("dimensions", ctypes.c_int),
    )

    @classmethod
    def of(cls, memory: NDArray[Any], box: Box) -> FiberMap:
        count = len(box.sizes)
        filled = (1,) * (5 - count)
        strides = (1, *(each // 2 for each in box.strides), *(0,) * (5 - count))
        return cls(
            memory.ctypes.data,
            (ctypes.c_long * 5)(*box.sizes, *filled),
            (ctypes.c_long * 5)(*strides),
            (ctypes.c_int * 5)(*box.shape, *filled),
            count,
        )


RUN = """
struct Arguments {
  const TensorMap* a;
  const TensorMap* b;
  const float* bias;
  const Element* residual;
  Element* out;
  int m, n, k, ldo;
  const RowSums* norm_parts;
  const float* norm_columns;
  float per_column, epsilon;
  RowSums* row_sums;
};
static void block(void* context) {
  const Arguments& it = *(const Arguments*)context;
  gemm_cluster(*it.a, *it.b, it.bias, it.residual, it.out, it.m, it.n, it.k, it.ldo, it.norm_parts,
               it.norm_columns, it.per_column, it.epsilon, it.row_sums);
}
extern "C" void run(unsigned blocks, int threads, unsigned long shared_bytes, TensorMap* a, TensorMap* b,
                    void* bias, void* residual, void* out, int m, int n, int k, int ldo, void* norm_parts,
                    void* norm_columns, float per_column, float epsilon, void* row_sums) {
  on_fibers::barriers.clear();
  Arguments it = {a, b, (float*)bias, (Element*)residual, (Element*)out, m, n, k, ldo, (RowSums*)norm_parts,
                  (float*)norm_columns, per_column, epsilon, (RowSums*)row_sums};
  const unsigned grid[3] = {blocks, 1, 1};
  fibers::launch(grid, threads, shared_bytes, block, &it);
}
"""


CLANG = shutil.which("clang++-19")
needs_clang = pytest.mark.skipif(CLANG is None, reason="needs clang++-19, of Debian's package clang-19")


def compiled(launch: Launch, folder: Path) -> Callable[..., None]:
    """The launch's kernel as a function that runs on fibers."""
    text = (KERNELS / f"{launch.kernel.file}.hip").read_text("utf-8")
    text = text.replace('#include "hopper.h"', '#include "hopper_on_fibers.h"')
    (folder / "kernel.cc").write_text(f'#include "fibers.h"\n#include "portable.h"\n{text}{RUN}', "utf-8")
    flags = ["-O1", "-w", "-fno-strict-aliasing", "-fPIC", "-shared", "-std=c++17", f"-I{FIBERS}"]
    flags += [f"-I{KERNELS}", "-DWAVEFRONT_CPU", "-DWAVEFRONT_CPU_WAVE=32", *launch.kernel.options]
    assert CLANG is not None
    done = subprocess.run(
        [CLANG, *flags, "kernel.cc", "-o", "kernel.so"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    run: Callable[..., None] = ctypes.CDLL(str(folder / "kernel.so")).run
    return run


@pytest.mark.integration
@needs_clang
@pytest.mark.parametrize(
    ("tile", "name"),
    [
        (TILES[0], "more rows and columns than the tiles"),
        (TILES[1], "a norm of the residual"),
        (TILES[2], "a norm of the inputs"),
        (TILES[3], "more rows and columns than the tiles"),
        (TILES[3], "a norm of the residual"),
        (TILES[4], "leaves a norm"),
        (TILES[5], "plain"),
    ],
    ids=str,
)
def test_on_fibers(tile: ClusterTile, name: str, tmp_path: Path) -> None:
    operands = Operands(CASES[name])
    m, n, _ = operands.case.shape
    program = operands.build(tile).program
    (launch,) = program.steps
    assert isinstance(launch, Launch)
    out = np.full((m, n), 0x7FFF, np.uint16)
    arrays = {**program.weights, **operands.arrays(), "out": out}
    arrays |= {
        each: np.full(size, 0xFF, np.uint8) for each, size in program.work.items() if each not in arrays
    }

    def value(argument: Any) -> Any:
        match argument:
            case TensorMap(buffer, box):
                return ctypes.byref(FiberMap.of(arrays[buffer.name], box))
            case Buffer():
                return ctypes.c_void_p(arrays[argument.name].ctypes.data)
            case float():
                return ctypes.c_float(argument)
        return argument

    run = compiled(launch, tmp_path)
    run(
        launch.grid[0],
        launch.threads,
        ctypes.c_ulong(launch.shared_bytes),
        *(value(each) for each in launch.arguments),
    )
    found = widened(out, Precision.FP16)
    check(found, operands.expected())
    if operands.case.leaves:
        sums = arrays["row_sums0"].view(np.float32).reshape(-1, m, 2)
        parts = found.reshape(m, -1, 32).swapaxes(0, 1)
        np.testing.assert_allclose(sums[:, :, 0], parts.sum(2), rtol=1e-2, atol=0.05)
        np.testing.assert_allclose(sums[:, :, 1], np.square(parts).sum(2), rtol=1e-2)


# -- what it is offered to -----------------------------------------------------------------------------------


def test_some_hundred_rows_on_hopper_are_offered_it() -> None:
    for m in (128, 256, 512, 1024, 2048):
        product = replace(PRODUCT, m=m)
        found = cluster_tiles.candidates(product, HOPPER, Precision.FP16, 132)
        assert found
        for tile in found:
            assert tile.shared_bytes <= HOPPER.shared_bytes
            assert tile.cluster_m * tile.splits <= 8
            assert tile.blocks(m, product.n) % (tile.cluster_m * tile.splits) == 0
    for other in (
        replace(PRODUCT, m=64),
        replace(PRODUCT, m=4096),
        replace(PRODUCT, n=1000),
        replace(PRODUCT, convolution=True),
        replace(PRODUCT, bias_by_square=True),
        replace(PRODUCT, segment=32),
    ):
        assert not cluster_tiles.candidates(other, HOPPER, Precision.FP16, 132)
    assert not cluster_tiles.candidates(PRODUCT, HOPPER, Precision.FP32, 132)
    assert not cluster_tiles.candidates(PRODUCT, nvidia_target(8, 0), Precision.FP16, 132)


@pytest.mark.parametrize("k", [64, 128, 192, 320, 1032])
def test_every_block_of_a_split_has_steps(k: int) -> None:
    steps = -(-k // 64)
    for tile in cluster_tiles.candidates(replace(PRODUCT, k=k), HOPPER, Precision.FP16, 132):
        share = -(-steps // tile.splits)
        assert (tile.splits - 1) * share < steps


# -- on the device -----------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_on_the_device(hopper_device: Any, tile: ClusterTile, name: str) -> None:
    operands = Operands(CASES[name])
    m, n, _ = operands.case.shape
    found = result_of(hopper_device, operands.build(tile).program, operands.arrays(), "out", (m, n))
    check(widened(found, Precision.FP16), operands.expected())
