# SPDX-License-Identifier: GPL-3.0-or-later
"""What `python -m evaluator kernels` compiles and reports."""
