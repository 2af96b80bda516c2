# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands of `python -m evaluator`, one module each."""
