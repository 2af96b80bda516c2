# SPDX-License-Identifier: GPL-3.0-or-later
"""The network in PyTorch, to and from `evaluator.network.spec`."""
