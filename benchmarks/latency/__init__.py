# SPDX-License-Identifier: GPL-3.0-or-later
"""Benchmarks of one evaluator call, stage by stage."""
