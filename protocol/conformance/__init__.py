# SPDX-License-Identifier: GPL-3.0-or-later
"""A scripted evaluator that shows the author of a client what the client does wrong."""
