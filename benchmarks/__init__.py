"""Measurements of this checkout, a module each: `python -m benchmarks.ROOM.NAME` in the repository's root."""
