# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with a query, for its sender."""

from __future__ import annotations


class QueryError(ValueError):
    """A query that is refused. field: which of its fields is wrong, empty if it is none of them."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


def fault(error: Exception) -> QueryError:
    """The message to a client about an internal error."""
    return QueryError(f"fault: {type(error).__name__}: {error}")
