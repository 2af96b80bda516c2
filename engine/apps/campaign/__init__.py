# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbered games with a journal: what matches, self-play and tuning share."""
