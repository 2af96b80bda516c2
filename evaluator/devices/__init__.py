# SPDX-License-Identifier: GPL-3.0-or-later
"""Execution of batches: networks opened on devices, the devices' threads, and failover."""
