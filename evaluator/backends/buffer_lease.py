# SPDX-License-Identifier: GPL-3.0-or-later
"""What a backend lends to the loop without the interpreter (evaluator/core/device_loop)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from evaluator._core import Call, Program


class BufferLease(Protocol):
    """All of a backend's batches in flight, numbered from 0; nobody else uses them until they are given back.

    slots: how many there are. version: programs made under another one must not be used any more. activate:
    makes the device the calling thread's.
    """

    @property
    def slots(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def activate(self) -> Call: ...

    def program(self, slot: int, positions: int, moves: int) -> Program | None:
        """What runs so many positions and moves in a slot; None for more than it holds. Raises
        BackendError."""

    def release(self) -> None:
        """Let others use them again. Nothing may be in flight."""
