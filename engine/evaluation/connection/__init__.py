# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection to an evaluator: started or configured, watched, and replaced."""
