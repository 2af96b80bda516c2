# SPDX-License-Identifier: GPL-3.0-or-later
"""The interface of a backend's leased batch buffers, for the loop without the interpreter
(core/device_loop)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from evaluator._core import Program


class Call(NamedTuple):
    """A driver function to be called later: name, address, and arguments as integers."""

    name: str
    function: int
    arguments: tuple[int, ...]


class BufferLease(Protocol):
    """All batch buffers of a backend, numbered from 0. Only the lessee uses them until `release`.

    slots: number of buffers. version: programs of another version are invalid. activate: makes the device
    current for the calling thread.
    """

    @property
    def slots(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def activate(self) -> Call: ...

    def program(self, slot: int, positions: int, moves: int) -> Program | None:
        """Return a program for a slot and batch size; None if the batch is too large. Raises BackendError."""

    def release(self) -> None:
        """Return the buffers to the backend. No batch may be in flight."""
