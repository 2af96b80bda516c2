# SPDX-License-Identifier: GPL-3.0-or-later
"""Measurements of this checkout, a module each: `python -m benchmarks.PACKAGE.NAME` in the root."""
