# SPDX-License-Identifier: GPL-3.0-or-later
"""Batch policies on simulated devices."""
