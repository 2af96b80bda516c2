# SPDX-License-Identifier: GPL-3.0-or-later
"""hipBLAS and hipBLASLt through the real hip-python: what they compute, and how their failures arrive."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluator.backends.gpu.blas.library import EPILOGUES, Library, LibraryProduct, Operands
from evaluator.backends.gpu.driver.device import DeviceError
from evaluator.backends.gpu.driver.target import Precision
from evaluator.backends.gpu.plan import weights as pack
from evaluator.network.arithmetic import activate
from evaluator.network.spec import Activation
from tests.evaluator.backends.gpu.blas.libraries import opened, require
from tests.hip_runtime import blas_standin
from tests.hip_runtime.blas_standin import Control
from tests.programs import python

pytestmark = pytest.mark.integration

M, N, K = 24, 16, 40
PLAIN = LibraryProduct(M, N, K, K, N, bias=False, residual=False)
EVERY_PRODUCT = [
    (name, LibraryProduct(M, N, K, K + 8, N + 8, bias, residual, activation))
    for name in ("hipBLAS", "hipBLASLt")
    for bias in sorted({False, EPILOGUES[name].bias})
    for residual in sorted({False, EPILOGUES[name].residual})
    for activation in (Activation.NONE, *sorted(EPILOGUES[name].activations, key=str))
]


class Arrays:
    """Rows as wide as the strides, NaN in the space between."""

    def __init__(self, product: LibraryProduct, precision: Precision) -> None:
        rng = np.random.default_rng(3)
        self.product, self.precision = product, precision
        self.a = self._padded(rng.standard_normal((product.m, product.k)), product.lda)
        self.b = self._padded(rng.standard_normal((product.n, product.k)) * product.k**-0.5, product.k)
        self.bias = self._padded(rng.standard_normal((1, product.n)), product.n)
        self.residual = self._padded(rng.standard_normal((product.m, product.n)), product.ldo)
        self.out = self._padded(np.zeros((product.m, product.n)), product.ldo)

    def _padded(self, values: Any, stride: int) -> Any:
        wide = np.full((len(values), stride), np.nan, np.float32)
        wide[:, : values.shape[1]] = values
        if self.precision is Precision.FP16:
            return wide.astype(np.float16)  # pack.stored refuses the NaN
        return pack.stored(wide, self.precision)

    def exact(self, values: Any) -> Any:
        if self.precision is Precision.BF16:
            values = (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return values.astype(np.float64)

    @property
    def expected(self) -> Any:
        product = self.product
        x = self.exact(self.a)[:, : product.k] @ self.exact(self.b).T
        if product.bias:
            x = x + self.exact(self.bias)
        if product.residual:
            x = x + self.exact(self.residual)[:, : product.n]
        return activate(product.activation, x)

    def multiply(self, library: Library, algorithm: bytes) -> Any:
        workspace = np.zeros(library.workspace, np.uint8)
        operands = Operands(
            a=self.a.ctypes.data,
            b=self.b.ctypes.data,
            bias=self.bias.ctypes.data if self.product.bias else 0,
            residual=self.residual.ctypes.data if self.product.residual else 0,
            out=self.out.ctypes.data,
        )
        library.multiply(self.product, algorithm, operands, workspace=workspace.ctypes.data, stream=0)
        return self.exact(self.out)[:, : self.product.n]


@pytest.fixture(params=["hipBLAS", "hipBLASLt"])
def library(request: pytest.FixtureRequest, controls: dict[str, Control]) -> Iterator[Library]:
    made = opened(request.param, Precision.FP32)
    yield made
    made.close()


@pytest.mark.parametrize("precision", Precision)
@pytest.mark.parametrize(("name", "product"), EVERY_PRODUCT)
def test_computes_the_product_with_all_that_it_fuses(
    name: str, product: LibraryProduct, precision: Precision, controls: dict[str, Control]
) -> None:
    library = opened(name, precision)
    algorithms = library.algorithms(product)
    assert len(set(algorithms)) == (3 if name == "hipBLASLt" else 1)
    arrays = Arrays(product, precision)
    limit = {Precision.FP32: 1e-5, Precision.FP16: 4e-3, Precision.BF16: 3e-2}[precision]
    for algorithm in algorithms:
        arrays.out[:] = 0
        assert np.abs(arrays.multiply(library, algorithm) - arrays.expected).max() < limit
    library.close()
    assert [control.alive for control in controls.values()] == [0, 0]


def test_a_status_is_an_error_that_names_the_call(library: Library, controls: dict[str, Control]) -> None:
    control = controls[library.name.lower()]
    algorithm = library.algorithms(PLAIN)[0]
    control.fail("multiply")
    with pytest.raises(DeviceError, match=r"hipblas(GemmEx|LtMatmul) failed with HIPBLAS_STATUS_EXECUTION"):
        Arrays(PLAIN, Precision.FP32).multiply(library, algorithm)
    library.close()
    library.close()
    assert control.alive == 0


@pytest.mark.parametrize("name", ["hipBLAS", "hipBLASLt"])
def test_a_library_that_cannot_start_says_so(name: str, controls: dict[str, Control]) -> None:
    controls[name.lower()].fail("create")
    with pytest.raises(DeviceError, match=r"HIPBLAS_STATUS_"):
        opened(name, Precision.FP16)


OPEN = """
from evaluator.backends.gpu.driver.device import DeviceInfo
from evaluator.backends.gpu.blas.discovery import open_libraries
from evaluator.backends.gpu.driver.target import Precision, amd_target

info = DeviceInfo("amd", 0, "", amd_target("gfx1100"), 0, 1, "", False)
libraries, problems = open_libraries(info, Precision.FP16)
print([library.version for library in libraries])
for name, why in problems.items():
    print(name, "|", why)
"""


MULTIPLY = """
from tests.evaluator.backends.gpu.blas.test_libraries import PLAIN, DeviceError, Arrays, Precision, opened

for name in ("hipBLASLt", "hipBLAS"):
    library = opened(name, Precision.FP32)
    try:
        Arrays(PLAIN, Precision.FP32).multiply(library, library.algorithms(PLAIN)[0])
    except DeviceError as error:
        print(error)
"""


def in_another_process(script: str, rocm: Path) -> list[str]:
    """A library once loaded stays, so that one without something needs a process of its own."""
    require()
    environment = {**os.environ, "ROCM_PATH": str(rocm)}
    return python(script, env=environment).stdout.splitlines()


def test_libraries_that_are_not_installed_are_named(tmp_path: Path) -> None:
    opened, *problems = in_another_process(OPEN, tmp_path)
    assert opened == "[]"
    assert len(problems) == 2
    assert "libhipblaslt.so" in problems[0]
    assert "libhipblas.so" in problems[1]


def test_both_libraries_are_offered_side_by_side(blas_folder: Path) -> None:
    assert in_another_process(OPEN, blas_folder) == ["['hipBLASLt 100300', 'hipBLAS 30200']"]


def test_a_missing_function_is_an_error_when_it_is_called(tmp_path: Path) -> None:
    require()
    rocm = blas_standin.build(tmp_path / "old", "WITHOUT_MATMUL", "WITHOUT_WORKSPACE")
    first, second = in_another_process(MULTIPLY, rocm)
    assert "hipblasLtMatmul" in first
    assert "hipblasSetWorkspace" in second
