# SPDX-License-Identifier: GPL-3.0-or-later
"""What matches and self-play share about games of chess."""
