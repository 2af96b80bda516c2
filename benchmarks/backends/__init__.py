# SPDX-License-Identifier: GPL-3.0-or-later
"""The backends: errors and speed of kernels and networks, on GPUs and processors."""
