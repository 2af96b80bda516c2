# SPDX-License-Identifier: GPL-3.0-or-later
"""Backends in numpy: the network's float64 reference, and evaluations without a network."""
