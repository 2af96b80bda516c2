# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs batches: networks opened on devices, their threads, and what is done when a device fails."""
