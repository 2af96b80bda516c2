# SPDX-License-Identifier: GPL-3.0-or-later
"""The search by itself: its speed, memory, move generation, tablebases and clock."""
