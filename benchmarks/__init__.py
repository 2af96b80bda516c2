# SPDX-License-Identifier: GPL-3.0-or-later
"""Benchmarks of this checkout, one per module. Run `python -m benchmarks.PACKAGE.NAME` in its root."""
