# SPDX-License-Identifier: GPL-3.0-or-later
"""Translates settings of lc0's trainers, YAML or text protocol buffers, to settings of a run."""
