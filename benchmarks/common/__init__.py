# SPDX-License-Identifier: GPL-3.0-or-later
"""Shared parts: figures and their tables, installations, processes, sleeping devices."""
