# SPDX-License-Identifier: GPL-3.0-or-later
"""Loading a network onto a device, and measuring its latency there."""
