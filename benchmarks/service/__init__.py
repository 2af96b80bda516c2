# SPDX-License-Identifier: GPL-3.0-or-later
"""Benchmarks of the evaluator service: rate, latency, hostile clients, failures, and soak tests."""
