# SPDX-License-Identifier: GPL-3.0-or-later
"""Scheduling without threads or I/O: queues, batch sizes, placement on devices."""
