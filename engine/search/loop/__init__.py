# SPDX-License-Identifier: GPL-3.0-or-later
"""The loop of all searches of a pool: steps, batch sizes and the moment to stop."""
