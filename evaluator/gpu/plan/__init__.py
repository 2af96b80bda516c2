# SPDX-License-Identifier: GPL-3.0-or-later
"""From a network to the launches that compute it."""
