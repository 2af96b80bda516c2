# SPDX-License-Identifier: GPL-3.0-or-later
"""A training run: steps, checkpoints, validation and processes."""
