# SPDX-License-Identifier: GPL-3.0-or-later
"""Many concurrent searches in one process, on shared evaluators."""
