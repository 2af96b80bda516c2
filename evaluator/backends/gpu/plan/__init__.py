# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans: the launches that compute a network, as plain data."""
