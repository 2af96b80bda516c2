# SPDX-License-Identifier: GPL-3.0-or-later
"""Errors in queries, for their sender."""

from __future__ import annotations


class QueryError(ValueError):
    """A query is refused. field: the invalid field; empty if the error is not in a field."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


def fault(error: Exception) -> QueryError:
    """Return the message to a client about an internal error."""
    return QueryError(f"fault: {type(error).__name__}: {error}")
