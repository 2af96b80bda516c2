# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of several evaluators gets a batch."""
