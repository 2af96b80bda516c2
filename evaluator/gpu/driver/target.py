# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernels and the plan must know of an architecture, from its name alone.

The compiler decides from its own macros whether a matrix unit exists (kernels/matrix.h); this is the same
knowledge on the host, used to choose tile shapes. A name that is not listed gets the kernels of its family,
or the generic kernels, which need nothing but FMA. `note` tells the user.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class MatrixUnit(Enum):
    """What multiplies 16 x 16 tiles."""

    MMA_SYNC = "mma.sync"  # NVIDIA sm_80 and newer
    WMMA_GFX11 = "WMMA (gfx11)"
    WMMA_GFX12 = "WMMA (gfx12)"
    MFMA = "MFMA"
    FMA = "none (FMA)"


AMD_UNITS = (MatrixUnit.WMMA_GFX11, MatrixUnit.WMMA_GFX12, MatrixUnit.MFMA)


class Precision(Enum):
    """How weights and activations are stored; sums are always float32."""

    FP16 = "fp16"
    BF16 = "bf16"
    FP32 = "fp32"

    @property
    def bytes(self) -> int:
        return 4 if self is Precision.FP32 else 2

    @property
    def chunk(self) -> int:
        """Elements in the 16 bytes that a thread moves at once; every row of a matrix is padded to it."""
        return 16 // self.bytes


@dataclass(frozen=True, slots=True)
class Target:
    """An architecture. name: "sm_90" or "gfx1100". wave: lanes that run in step. shared_bytes: the most
    shared memory (LDS) that one block may use. problem: why the kernels cannot run on it; empty if they can.
    note: which kernels it gets, if it is not listed.
    """

    name: str
    wave: int
    unit: MatrixUnit
    shared_bytes: int
    problem: str = ""
    note: str = ""

    @property
    def known(self) -> bool:
        """Whether it is listed."""
        return not self.note

    @property
    def options(self) -> tuple[str, ...]:
        """What kernels are compiled with for this target besides its name. Where no matrix unit is known none
        may be used: the compiler's macros name families (gfx12), in which a newer member can lack the
        instructions of the others. CDNA has no macro of its family."""
        if self.unit is MatrixUnit.FMA:
            return ("-DMATRIX_GENERIC=1",)
        return ("-DMATRIX_LIKE_GFX942=1",) if self.unit is MatrixUnit.MFMA and not self.known else ()

    @property
    def e4m3(self) -> float:
        """What a code of e4m3 stands for on its matrix unit, over what the Open Compute Project says: 1, or
        1/2 for the variant of gfx942. 0 where there is no unit for such numbers."""
        if self.name.startswith("sm_"):
            return 1.0 if int(self.name.removeprefix("sm_")) >= _FIRST_SM_WITH_E4M3 else 0.0
        return _GFX_E4M3.get(self.name, 0.0)

    @property
    def no_e4m3(self) -> str:
        """Why products of e4m3 numbers are not for it; empty where its matrix unit multiplies them twice as
        fast as fp16."""
        if self.unit is MatrixUnit.FMA:
            return "the kernels use no matrix unit there"
        if not self.known:
            return "such numbers have not been tried there"
        return "" if self.e4m3 else "its matrix unit has no e4m3"

    @property
    def flops_per_clock(self) -> int:
        """fp16 operations of a compute unit per clock, as the kernels use it.

        An addition with its multiplication counts twice. Sources: the vendors' product pages, peak rate /
        (units x boost clock).
        """
        if self.unit is MatrixUnit.FMA:
            return _FMA_FLOPS
        return _FLOPS.get(self.name, _UNIT_FLOPS[self.unit])

    @property
    def persistent(self) -> bool:
        """Whether kernels/persistent.hip is for it: measured to be faster, without spilled registers. Its
        source is portable, but AMD's compilers spill hundreds of registers with the tiles that it has."""
        return self.name == "sm_90"

    def matrix_unit(self, precision: Precision) -> MatrixUnit:
        """The unit that multiplies matrices of this storage."""
        return MatrixUnit.FMA if precision is Precision.FP32 else self.unit


_FMA_FLOPS = 128

_UNIT_FLOPS = {
    MatrixUnit.MMA_SYNC: 1024,
    MatrixUnit.WMMA_GFX11: 512,
    MatrixUnit.WMMA_GFX12: 1024,
    MatrixUnit.MFMA: 2048,
}
_FLOPS = {"sm_80": 2048, "sm_90": 4096, "sm_100": 8192, "sm_103": 8192, "gfx90a": 1024}

_SM_SHARED_KIB = {
    75: 64,
    80: 163,
    86: 99,
    87: 163,
    89: 99,
    90: 227,
    100: 227,
    103: 227,
    110: 227,
}
"""Shared memory of a block, from the table of compute capabilities in the CUDA C++ Programming Guide."""

_LDS_BYTES = 64 << 10

_FIRST_SM_WITH_E4M3 = 89

_GFX_E4M3 = {"gfx942": 0.5, "gfx1200": 1.0, "gfx1201": 1.0}

_GFX_UNITS = {
    "gfx90a": MatrixUnit.MFMA,
    "gfx942": MatrixUnit.MFMA,
    "gfx1100": MatrixUnit.WMMA_GFX11,
    "gfx1101": MatrixUnit.WMMA_GFX11,
    "gfx1102": MatrixUnit.WMMA_GFX11,
    "gfx1103": MatrixUnit.WMMA_GFX11,
    "gfx1150": MatrixUnit.WMMA_GFX11,
    "gfx1151": MatrixUnit.WMMA_GFX11,
    "gfx1152": MatrixUnit.WMMA_GFX11,
    "gfx1153": MatrixUnit.WMMA_GFX11,
    "gfx1200": MatrixUnit.WMMA_GFX12,
    "gfx1201": MatrixUnit.WMMA_GFX12,
}

_GFX_GENERIC = {
    "gfx900",
    "gfx906",
    "gfx908",
    "gfx1010",
    "gfx1011",
    "gfx1012",
    "gfx1030",
    "gfx1031",
    "gfx1032",
    "gfx1033",
    "gfx1034",
    "gfx1035",
    "gfx1036",
}

_GFX_FAMILIES = (
    (re.compile("gfx9[45][0-9a-f]"), "gfx942"),
    (re.compile("gfx11[05][0-9a-f]"), "gfx1100"),
    (re.compile("gfx120[0-9a-f]"), "gfx1200"),
)
"""Names whose matrix unit has the instructions of a listed target that the kernels use. gfx950 has the MFMA
of 16x16x16 (AMD's Composable Kernel uses it there). gfx1250 has other WMMA than gfx1200 (LLVM's
gfx1250-insts)."""


def _unlisted(name: str) -> tuple[MatrixUnit, str]:
    """The matrix unit of a name that is not listed, and the note for the user."""
    for names, member in _GFX_FAMILIES:
        if names.fullmatch(name):
            return _GFX_UNITS[member], f"not tried yet: the kernels of {member}"
    return MatrixUnit.FMA, "unknown: generic kernels, without a matrix unit"


def amd_target(gcn_arch_name: str) -> Target:
    """The target that hipDeviceProp_t.gcnArchName ("gfx90a:sramecc+:xnack-") names."""
    name = gcn_arch_name.partition(":")[0]
    unit, note = _GFX_UNITS.get(name, MatrixUnit.FMA), ""
    if name not in _GFX_UNITS and name not in _GFX_GENERIC:
        unit, note = _unlisted(name)
    # gfx8 and older have waves of 64 lanes under names that do not begin with gfx9, and no half precision.
    old = len(name) < len("gfx1000") and not name.startswith("gfx9")
    return Target(
        name,
        wave=64 if name.startswith("gfx9") else 32,
        unit=unit,
        shared_bytes=_LDS_BYTES,
        note=note,
        problem=f"{name} is not supported: AMD GPUs from gfx900 (Vega) on are" if old else "",
    )


def nvidia_target(major: int, minor: int) -> Target:
    """The target of a compute capability."""
    capability = 10 * major + minor
    return Target(
        f"sm_{capability}",
        wave=32,
        unit=MatrixUnit.MMA_SYNC if capability >= 80 else MatrixUnit.FMA,
        shared_bytes=_SM_SHARED_KIB.get(capability, 99 if capability >= 80 else 48) << 10,
        note="" if capability in _SM_SHARED_KIB or capability >= 80 else "unknown: generic kernels",
        problem=""
        if capability >= 75
        else f"compute capability {major}.{minor} is not supported: NVIDIA GPUs from 7.5 (Turing) on are",
    )
