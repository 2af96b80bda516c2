# SPDX-License-Identifier: GPL-3.0-or-later
"""From games to networks: training positions, targets, the model in PyTorch, and the way back to an lc0 file.

Everything but `model`, `optim` and `run` works without PyTorch, which is in the extra `train`.
"""
