# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine as a whole: its start, matches, self-play, analysis."""
