# SPDX-License-Identifier: GPL-3.0-or-later
"""The evaluator as a service: its rate, latencies, hostile clients, failures, and hours under load."""
