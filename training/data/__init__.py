# SPDX-License-Identifier: GPL-3.0-or-later
"""Training positions: the files they are kept in, where they come from, and the table that is trained on."""
