# SPDX-License-Identifier: GPL-3.0-or-later
"""Running batches: the devices' threads, their choice, failover, trials and background tuning."""
