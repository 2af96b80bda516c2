# SPDX-License-Identifier: GPL-3.0-or-later
"""Properties of an architecture that the kernels and the plan need, derived from its name alone.

The compiler's macros decide whether a kernel has a matrix unit (kernels/matrix.h). This module has the same
knowledge on the host, for choosing tile shapes. Unlisted names get the kernels of their family, or the
generic kernels, which need only FMA; `note` informs the user. Names of families (gfx11-generic) are for
compiling only: no device reports one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


class MatrixUnit(Enum):
    """The unit that multiplies 16 x 16 tiles."""

    MMA_SYNC = "mma.sync"  # NVIDIA sm_80 and newer
    WMMA_GFX11 = "WMMA (gfx11)"
    WMMA_GFX12 = "WMMA (gfx12)"
    MFMA = "MFMA"
    FMA = "none (FMA)"


AMD_UNITS = (MatrixUnit.WMMA_GFX11, MatrixUnit.WMMA_GFX12, MatrixUnit.MFMA)


class Precision(Enum):
    """Storage format of weights and activations; sums are always float32."""

    FP16 = "fp16"
    BF16 = "bf16"
    FP32 = "fp32"

    @property
    def bytes(self) -> int:
        return 4 if self is Precision.FP32 else 2

    @property
    def chunk(self) -> int:
        """Elements in the 16 bytes that a thread moves at once; matrix rows are padded to a multiple."""
        return 16 // self.bytes


@dataclass(frozen=True, slots=True)
class Target:
    """An architecture. name: "sm_90" or "gfx1100". wave: lanes per wave. shared_bytes: maximum shared memory
    (LDS) of a block. problem: why the kernels cannot run on it; empty if they can. note: which kernels an
    unlisted name gets.
    """

    name: str
    wave: int
    unit: MatrixUnit
    shared_bytes: int
    problem: str = ""
    note: str = ""

    @property
    def is_listed(self) -> bool:
        """True if it is listed."""
        return not self.note

    @property
    def options(self) -> tuple[str, ...]:
        """Compiler options for this target in addition to its name. Without a known matrix unit none may be
        used: the compiler's macros name families (gfx12), and a newer member may lack instructions of the
        others. CDNA has no macro for its family."""
        if self.unit is MatrixUnit.FMA:
            return ("-DMATRIX_GENERIC=1",)
        return ("-DMATRIX_LIKE_GFX942=1",) if self.unit is MatrixUnit.MFMA and not self.is_listed else ()

    @property
    def e4m3(self) -> float:
        """The value of an e4m3 code on its matrix unit, relative to the Open Compute Project's: 1, or 1/2 for
        gfx942's variant. 0 without a unit for e4m3."""
        if self.name.startswith("sm_"):
            return 1.0 if int(self.name.removeprefix("sm_")) >= _FIRST_SM_WITH_E4M3 else 0.0
        return _GFX_E4M3.get(self.name, 0.0)

    @property
    def no_e4m3(self) -> str:
        """Why products of e4m3 numbers are useless here; empty if the matrix unit multiplies them twice as
        fast as fp16. On gfx950 only its MFMA 16x16x128 does."""
        if self.unit is MatrixUnit.FMA:
            return "the kernels use no matrix unit there"
        if not self.is_listed:
            return "such numbers have not been tried there"
        return "" if self.e4m3 else "its matrix unit has no e4m3"

    @property
    def flops_per_clock(self) -> int:
        """fp16 operations of a compute unit per clock with these kernels.

        A multiply-add counts twice. Sources: the vendors' product pages, peak rate / (units x boost clock).
        """
        if self.unit is MatrixUnit.FMA:
            return _FMA_FLOPS
        return _FLOPS.get(self.name, _UNIT_FLOPS[self.unit])

    @property
    def persistent(self) -> bool:
        """True if kernels/persistent.hip is measured to be faster here, without register spills. Its source
        is portable, but AMD's compilers spill hundreds of registers with its tiles."""
        return self.name == "sm_90"

    def matrix_unit(self, precision: Precision) -> MatrixUnit:
        """Return the unit for matrices in this format."""
        if precision is Precision.FP32 or (precision is Precision.BF16 and self.name in _NO_BF16):
            return MatrixUnit.FMA
        return self.unit

    @property
    def lds_bytes(self) -> int:
        """LDS that the blocks on four SIMDs of an AMD GPU share: on a compute unit before RDNA, on a work
        group processor since. From LLVM's AMDGPU user guide and AMD's ISA documents."""
        if self.name.startswith("gfx9"):
            return _GFX_LDS_KIB.get(self.name, 64) << 10
        return 128 << 10


_FMA_FLOPS = 128

_UNIT_FLOPS = {
    MatrixUnit.MMA_SYNC: 1024,
    MatrixUnit.WMMA_GFX11: 512,
    MatrixUnit.WMMA_GFX12: 1024,
    MatrixUnit.MFMA: 2048,
}
_FLOPS = {"sm_80": 2048, "sm_90": 4096, "sm_100": 8192, "sm_103": 8192}
_FLOPS |= {"gfx908": 1024, "gfx90a": 1024, "gfx950": 4096}

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
"""Shared memory per block, from the table of compute capabilities in the CUDA C++ Programming Guide."""

_LDS_BYTES = 64 << 10
"""Limit of a block on every AMD target. gfx950 allows 160 KB, but no tile for AMD needs more than 64 KB. Its
larger LDS holds more blocks instead (`Target.lds_bytes`)."""

_GFX_LDS_KIB = {"gfx950": 160}

_FIRST_SM_WITH_E4M3 = 89

_GFX_E4M3 = {"gfx942": 0.5, "gfx950": 1.0, "gfx1200": 1.0, "gfx1201": 1.0}

_NO_BF16 = ("gfx908",)
"""Their MFMA for bf16 has another shape than gfx90a's (16x16x8), which the kernels do not use."""

_GFX_UNITS = {
    "gfx908": MatrixUnit.MFMA,
    "gfx90a": MatrixUnit.MFMA,
    "gfx942": MatrixUnit.MFMA,
    "gfx950": MatrixUnit.MFMA,
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
"""Unlisted names whose matrix unit has the instructions that the kernels use on a listed target."""

_GFX_FAMILY_NAMES = {
    "gfx9-generic": "",
    "gfx9-4-generic": "gfx942",
    "gfx10-1-generic": "",
    "gfx10-3-generic": "",
    "gfx11-generic": "gfx1100",
    "gfx12-generic": "gfx1200",
}
"""LLVM's names for code that runs on several GPUs, and the listed target whose matrix instructions all of
these have; empty if they share none."""

_GFX_WITHOUT = (
    (re.compile("gfx9(02|04|09|0c)|gfx1013"), "not tried yet"),
    (re.compile("gfx125[0-9a-f]"), "its matrix unit differs from that of gfx1200"),
    (re.compile("gfx117[0-9a-f]"), "its matrix unit has not been tried"),
)
"""Unlisted names that get the generic kernels, and why. gfx1250's WMMA is that of LLVM's gfx1250-insts."""

_GENERIC_KERNELS = "generic kernels, without a matrix unit"


def _unlisted(name: str) -> tuple[MatrixUnit, str]:
    """Return the matrix unit for an unlisted name, and the note for the user."""
    member = _GFX_FAMILY_NAMES.get(name)
    if member is not None:
        kernels = f"the kernels of {member}, without e4m3" if member else _GENERIC_KERNELS
        return _GFX_UNITS.get(member, MatrixUnit.FMA), f"a family, for compiling only: {kernels}"
    for names, member in _GFX_FAMILIES:
        if names.fullmatch(name):
            return _GFX_UNITS[member], f"not tried yet: the kernels of {member}"
    reason = next((why for names, why in _GFX_WITHOUT if names.fullmatch(name)), "unknown")
    return MatrixUnit.FMA, f"{reason}: {_GENERIC_KERNELS}"


def amd_target(gcn_arch_name: str) -> Target:
    """Return the target for hipDeviceProp_t.gcnArchName ("gfx90a:sramecc+:xnack-")."""
    name = gcn_arch_name.partition(":")[0]
    unit, note = _GFX_UNITS.get(name, MatrixUnit.FMA), ""
    if name not in _GFX_UNITS and name not in _GFX_GENERIC:
        unit, note = _unlisted(name)
    # gfx8 and older have 64-lane waves, names that do not begin with gfx9, and no half precision.
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
    """Return the target for a compute capability."""
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
