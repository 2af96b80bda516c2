# SPDX-License-Identifier: GPL-3.0-or-later
"""Benchmarks of backends: errors and speed of kernels and networks, on GPUs and CPUs."""
