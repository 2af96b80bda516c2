# SPDX-License-Identifier: GPL-3.0-or-later
"""The players of a match: this engine with a network, and other UCI engines."""
