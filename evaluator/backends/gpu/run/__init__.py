# SPDX-License-Identifier: GPL-3.0-or-later
"""Execution of a plan on a device: buffers, launches, batches in flight."""
