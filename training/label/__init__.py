# SPDX-License-Identifier: GPL-3.0-or-later
"""Playing and labelling games with many UCI engines at once: positions of the games and branches."""
