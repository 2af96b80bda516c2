# SPDX-License-Identifier: GPL-3.0-or-later
"""Many searches in one process, on shared evaluators."""
