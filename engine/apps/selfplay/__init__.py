# SPDX-License-Identifier: GPL-3.0-or-later
"""Self-play: games of one network against itself, and their training data."""
