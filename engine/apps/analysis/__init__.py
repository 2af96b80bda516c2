# SPDX-License-Identifier: GPL-3.0-or-later
"""Analysis for programs: JSON queries and answers, and many concurrent searches."""
