# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan on a device: buffers, launches, batches in flight."""
