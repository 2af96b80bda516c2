# SPDX-License-Identifier: GPL-3.0-or-later
"""Declaring, reading and showing settings, for engine, evaluator and training."""
