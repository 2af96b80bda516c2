# SPDX-License-Identifier: GPL-3.0-or-later
"""Who plays in a match: networks of ours, and other UCI engines."""
