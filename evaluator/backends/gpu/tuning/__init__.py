# SPDX-License-Identifier: GPL-3.0-or-later
"""Measuring of kernels and libraries, and choosing the fastest."""
