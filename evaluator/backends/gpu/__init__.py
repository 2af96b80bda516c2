# SPDX-License-Identifier: GPL-3.0-or-later
"""lc0 networks on GPUs: drivers, the kernel compiler, plans from networks to launches, tuning, execution."""
