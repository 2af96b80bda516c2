# SPDX-License-Identifier: GPL-3.0-or-later
"""Batches on their way to evaluators and back."""
