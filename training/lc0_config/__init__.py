# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of lc0's trainers, YAML or text protocol buffers, to settings of a run."""
