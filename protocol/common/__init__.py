# SPDX-License-Identifier: GPL-3.0-or-later
"""Operating-system utilities shared by engine, evaluator and training; nothing about messages."""
