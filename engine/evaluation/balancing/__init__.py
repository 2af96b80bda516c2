# SPDX-License-Identifier: GPL-3.0-or-later
"""Balancing of a pool's requests over several evaluators: each goes to the one that answers it first."""
