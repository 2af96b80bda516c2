# SPDX-License-Identifier: GPL-3.0-or-later
"""A training run: its steps, checkpoints, measurements and processes."""
