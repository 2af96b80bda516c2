# SPDX-License-Identifier: GPL-3.0-or-later
"""A scripted evaluator that reports protocol faults of a client to its author."""
