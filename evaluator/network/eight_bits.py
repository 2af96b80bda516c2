"""The formats of 8 bits that an encoder's products may be computed in (gpu.plan.eight_bits)."""

from __future__ import annotations

from enum import Enum


class EightBits(Enum):
    """What the numbers of a product are. The values name weights and launches."""

    E4M3 = "e4m3"  # with one scale for a matrix (e4m3.py)
    INT8 = "int8"  # with one scale for each row (int8.py)

    @property
    def option(self) -> str:
        """The value of the gpu backend's `precision` for it."""
        return "fp8" if self is EightBits.E4M3 else "int8"
