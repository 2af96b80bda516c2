# SPDX-License-Identifier: GPL-3.0-or-later
"""Code that matches and self-play share: running, recording and displaying games, and openings."""
