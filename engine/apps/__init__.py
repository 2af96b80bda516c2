# SPDX-License-Identifier: GPL-3.0-or-later
"""What people use: analysis, the browser, reviews, lichess, matches, self-play and tuning."""
