# SPDX-License-Identifier: GPL-3.0-or-later
"""The network in PyTorch, and its conversion from and to `evaluator.network.spec`."""
