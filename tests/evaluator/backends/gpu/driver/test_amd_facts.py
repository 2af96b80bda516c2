# SPDX-License-Identifier: GPL-3.0-or-later
"""Sizes and values of AMD's headers that the host code relies on, and the installed hip-python's.

Sources: ROCm's hip_runtime_api.h, driver_types.h, library_types.h, hipblas-common.h, hipblas.h and
hipblaslt.h. A binding for other headers would pass wrong numbers to the library without an error. hip-python
10 has run here, 7 has not.
"""

import ctypes
import importlib
from typing import Any

import pytest

from evaluator.backends.gpu.driver.device import NOT_READY
from tests.evaluator.backends.gpu.blas.libraries import require
from tests.hip_runtime import standin

ERRORS = {
    "hipSuccess": 0,
    "hipErrorOutOfMemory": 2,
    "hipErrorNoDevice": 100,
    "hipErrorNoBinaryForGpu": 209,
    "hipErrorNotReady": NOT_READY,
    "hipErrorIllegalAddress": 700,
    "hipErrorLaunchFailure": 719,
}

FLAGS = {
    "hipStreamNonBlocking": "_STREAM_NON_BLOCKING",
    "hipEventDisableTiming": "_EVENT_DISABLE_TIMING",
    "hipHostMallocNonCoherent": "_HOST_NON_COHERENT",
}
"""Names in hip_runtime_api.h and in evaluator/backends/gpu/driver/amd.py."""

ENUMERATORS = {
    "hip.hipMemcpyKind": {"hipMemcpyHostToDevice": 1, "hipMemcpyDeviceToHost": 2},
    "hip.hipStreamCaptureMode": {"hipStreamCaptureModeThreadLocal": 1},
    "hip.hipStreamCaptureStatus": {"hipStreamCaptureStatusNone": 0},
    "hip.hipDataType": {"HIP_R_32F": 0, "HIP_R_16F": 2, "HIP_R_16BF": 14},
    "hipblas.hipblasOperation_t": {"HIPBLAS_OP_N": 111, "HIPBLAS_OP_T": 112},
    "hipblas.hipblasComputeType_t": {"HIPBLAS_COMPUTE_32F": 2},
    "hipblas.hipblasGemmAlgo_t": {"HIPBLAS_GEMM_DEFAULT": 160},
    "hipblaslt.hipblasLtMatmulDescAttributes_t": {
        "HIPBLASLT_MATMUL_DESC_TRANSA": 0,
        "HIPBLASLT_MATMUL_DESC_TRANSB": 1,
        "HIPBLASLT_MATMUL_DESC_EPILOGUE": 2,
        "HIPBLASLT_MATMUL_DESC_BIAS_POINTER": 3,
        "HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE": 4,
    },
    "hipblaslt.hipblasLtMatmulPreferenceAttributes_t": {"HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES": 1},
    "hipblaslt.hipblasLtEpilogue_t": {
        "HIPBLASLT_EPILOGUE_DEFAULT": 1,
        "HIPBLASLT_EPILOGUE_RELU": 2,
        "HIPBLASLT_EPILOGUE_BIAS": 4,
        "HIPBLASLT_EPILOGUE_RELU_BIAS": 6,
        "HIPBLASLT_EPILOGUE_SWISH_EXT": 65536,
        "HIPBLASLT_EPILOGUE_SWISH_BIAS_EXT": 65540,
    },
}

PROPERTIES_BYTES = 1472
TEXTS = {"name": 0, "gcnArchName": 1160}
NUMBERS = {"totalGlobalMem": 288, "clockRate": 348, "multiProcessorCount": 388, "integrated": 396}
"""hipDeviceProp_tR0600, the same since ROCm 6: its size, and the offsets of the fields that are read."""

SIZES = {"hipblasLtMatmulAlgo_t": 24, "hipblasLtMatmulHeuristicResult_t": 56}


@pytest.fixture(autouse=True)
def binding() -> None:
    if reason := standin.unavailable():
        pytest.skip(reason)


def module(name: str) -> Any:
    """Return a module of hip-python as `from hip import NAME` does. 10.x has no file of that name."""
    if name != "hip":
        require()
    package = __import__("hip", fromlist=[name])
    return getattr(package, name)


def test_errors_have_the_values_of_the_header() -> None:
    known = module("hip").hipError_t
    assert {name: int(known[name]) for name in ERRORS} == ERRORS


def test_flags_have_the_values_of_the_header() -> None:
    hip, amd = module("hip"), importlib.import_module("evaluator.backends.gpu.driver.amd")
    bits = {name: getattr(hip, name) & 0xFFFFFFFF for name in FLAGS}  # the highest one is a sign to some
    assert bits == {name: getattr(amd, own) for name, own in FLAGS.items()}
    assert hip.hipHostMallocPortable | hip.hipHostMallocMapped == amd._HOST_PORTABLE_MAPPED


@pytest.mark.parametrize("enumeration", ENUMERATORS)
def test_enumerators_have_the_values_of_the_header(enumeration: str) -> None:
    where, name = enumeration.split(".")
    known = getattr(module(where), name)
    values = ENUMERATORS[enumeration]
    assert {each: int(known[each]) for each in values} == values


def test_properties_are_read_at_the_offsets_of_the_header() -> None:
    properties = module("hip").hipDeviceProp_t()
    assert properties.c_sizeof() == PROPERTIES_BYTES
    address = int(properties)
    for value, (name, offset) in enumerate(NUMBERS.items(), 1):
        ctypes.c_int32.from_address(address + offset).value = value
        assert getattr(properties, name) == value
    for name, offset in TEXTS.items():
        ctypes.memmove(address + offset, b"gfx942\0", 7)
        text = getattr(properties, name)
        assert (text if isinstance(text, str) else text.split(b"\0")[0].decode()) == "gfx942"


@pytest.mark.parametrize("name", SIZES)
def test_structs_of_hipblaslt_have_the_size_of_the_header(name: str) -> None:
    assert getattr(module("hipblaslt"), name)().c_sizeof() == SIZES[name]
