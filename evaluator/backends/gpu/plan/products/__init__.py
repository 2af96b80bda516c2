# SPDX-License-Identifier: GPL-3.0-or-later
"""Matrix products as launches: the kernels that compute them, and their epilogues."""
