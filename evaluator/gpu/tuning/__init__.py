# SPDX-License-Identifier: GPL-3.0-or-later
"""The measured choice among kernels and libraries."""
