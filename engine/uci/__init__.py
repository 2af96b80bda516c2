# SPDX-License-Identifier: GPL-3.0-or-later
"""The UCI protocol: commands of a GUI and the answers."""
