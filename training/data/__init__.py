# SPDX-License-Identifier: GPL-3.0-or-later
"""Training positions: their files, their sources, and the table in memory."""
