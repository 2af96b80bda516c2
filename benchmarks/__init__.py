"""Measurements of this checkout, a module each: `python -m benchmarks.PACKAGE.NAME` in the root."""
