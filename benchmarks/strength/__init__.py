# SPDX-License-Identifier: GPL-3.0-or-later
"""What ways to search are worth in play: games, simulated time, and moves judged one by one."""
