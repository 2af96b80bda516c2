# SPDX-License-Identifier: GPL-3.0-or-later
"""Training: positions from games, targets, the model in PyTorch, and export to an lc0 file.

Everything except `model`, `optim` and `run` works without PyTorch, which is in the extra `train`.
"""
