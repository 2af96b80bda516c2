# SPDX-License-Identifier: GPL-3.0-or-later
"""What moves the weights: optimisers, their schedule, and the mean of the weights."""
