# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects that a `with` block closes."""

from __future__ import annotations

from typing import Self


class Closing:
    """Has `close`, which the end of a `with` block calls."""

    __slots__ = ()

    def close(self) -> None:
        """Free what this object holds. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
