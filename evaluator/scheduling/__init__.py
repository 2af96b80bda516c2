# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs when and where, decided without threads or I/O: queues, batch sizes, placement."""
