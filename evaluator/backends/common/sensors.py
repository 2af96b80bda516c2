# SPDX-License-Identifier: GPL-3.0-or-later
"""Readings of a device's sensors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sensors:
    """watts: power, current or averaged by the driver. celsius: of the chip. None: unknown."""

    watts: float | None = None
    celsius: float | None = None

    def __str__(self) -> str:
        power = [] if self.watts is None else [f"{self.watts:.0f} W"]
        return ", ".join([*power, *([] if self.celsius is None else [f"{self.celsius:.0f} °C"])])

    def measured(self) -> dict[str, float]:
        """Return the known readings by name."""
        both = {"watts": self.watts, "celsius": self.celsius}
        return {name: value for name, value in both.items() if value is not None}
