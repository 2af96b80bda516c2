# SPDX-License-Identifier: GPL-3.0-or-later
"""lc0 networks on GPUs: devices, the compiler of the kernels, and the plan from a network to launches."""
