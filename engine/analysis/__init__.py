# SPDX-License-Identifier: GPL-3.0-or-later
"""Analysis for programs: queries as JSON in, answers as JSON out, many searches at once."""
