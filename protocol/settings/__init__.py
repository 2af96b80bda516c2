# SPDX-License-Identifier: GPL-3.0-or-later
"""How a table of settings is declared, read and shown, by the engine and by the evaluator."""
